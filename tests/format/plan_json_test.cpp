// Plan files: round trip, refusals by field, hostile texts.
#include "format/plan_json.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "balance/families.hpp"
#include "core/check.hpp"
#include "format/errors.hpp"

namespace flashmask::format {
namespace {

using balancing::Family;

Plan example(std::int64_t nodes) {
  flashmask::Workload w = balancing::family_workload(Family::causal_document_8k, 20 << 10, 4, nodes, 11);
  w.speeds = {100, 100, 90, 100};
  return balance(w, {.epsilon_millionths = 12'345, .seed = ~std::uint64_t{0}});
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PlanJson, a_plan_survives_the_round_trip_bit_by_bit) {
  for (const std::int64_t nodes : {1, 2}) {
    const Plan plan = example(nodes);
    const std::string text = plan_json(plan, 17).dump();
    const Plan read = parse_plan(text, "plan.json");
    EXPECT_EQ(read, plan) << first_difference(read, plan);
    EXPECT_EQ(read.digest(), plan.digest());
    EXPECT_EQ(plan_json(read, 17).dump(), text);
  }
  flashmask::Workload none;
  none.ranks = 2;
  const Plan empty = balance(none);
  EXPECT_EQ(parse_plan(plan_json(empty).dump(), "empty"), empty);
  flashmask::Workload no_batch;
  no_batch.unit = WorkUnit::cells, no_batch.ranks = 2, no_batch.chunk = 4, no_batch.columns = 16,
  no_batch.loads = {0, 0, 0, 0};
  no_batch.needs = {NeedSets(NeedRuns(0, 4, 4))};
  const Plan plan = balance(no_batch);
  EXPECT_EQ(parse_plan(plan_json(plan).dump(), "no batch"), plan);
}

TEST(PlanJson, what_a_reader_relies_on_is_there) {
  const Json value = plan_json(example(2), 17);
  for (const char* key : {"peak", "lower_bound", "proven_optimal", "method", "imbalance", "assignment", "loads",
                          "inbound_chunks", "epsilon", "unit", "time_us"}) {
    EXPECT_NE(value.find(key), nullptr) << key;
  }
  EXPECT_EQ(*value.find("epsilon")->number(), 0.012345);
}

TEST(PlanJson, a_file_that_lies_is_refused_by_the_field) {
  const Plan plan = example(2);
  const std::string good = plan_json(plan).dump();
  const auto error = [](const std::string& text) { return error_of([&] { parse_plan(text, "p"); }); };
  EXPECT_TRUE(contains(error(replaced(good, "\"version\": 4", "\"version\": 5")), "version"));
  EXPECT_TRUE(contains(error(replaced(good, "\"kind\": \"hcc_ipo\"", "\"kind\": \"magic\"")), "kind: \"magic\""));
  EXPECT_TRUE(contains(error(replaced(good, "\"ranks\": 4", "\"ranks\": 3")), "loads"));
  EXPECT_TRUE(contains(error(replaced(good, "\"peak\": ", "\"peak\": 1")), "peak"));
  EXPECT_TRUE(contains(error(replaced(good, "\"imbalance\": 1.", "\"imbalance\": 0.")), "imbalance"));
  EXPECT_TRUE(contains(error(replaced(good, "\"assignment\": [", "\"assignment\": [7, ")), "needs"));
  EXPECT_TRUE(contains(error(replaced(good, "\"inter_chunks\": ", "\"inter_chunks\": 9")), "traffic"));
  EXPECT_TRUE(contains(error(replaced(good, "\"peak\"", "\"extra\": 1, \"peak\"")), "extra"));
  EXPECT_TRUE(contains(error(replaced(good, "\"seed\": \"f", "\"seed\": \"x")), "seed"));
  EXPECT_TRUE(contains(error(replaced(good, "\"seed\": \"f", "\"seed\": \"e")), "digest"));
  EXPECT_TRUE(contains(error(replaced(good, "\"epsilon\": 0.0", "\"epsilon\": 7.0")), "epsilon"));
}

TEST(PlanJson, how_tiles_were_counted_is_kept_and_older_files_know_nothing_of_it) {
  const Plan plan = example(2);
  ASSERT_TRUE(plan.record().tile_work);
  PlanRecord r = plan.record();
  r.tile_work = TileWork{{64, 96}, {{0, 0}, {7, std::int64_t{1} << 40}}, 0, 3};
  const Plan backward(r);
  EXPECT_EQ(parse_plan(plan_json(backward).dump(), "p"), backward);
  EXPECT_NE(backward.digest(), plan.digest());
  EXPECT_EQ(first_difference(plan, backward), "tile_work: tiles were counted otherwise");
  r.tile_work.reset();
  const std::string without = plan_json(Plan(r)).dump();
  EXPECT_EQ(without.find("tile_work"), std::string::npos);
  EXPECT_EQ(parse_plan(without, "p").record(), r);
  std::string good = plan_json(backward).dump(0);
  good.erase(good.rfind(",\"digest\""));
  good.push_back('}');
  ASSERT_EQ(parse_plan(good, "p"), backward);
  const auto error = [&](std::string_view from, std::string_view to) {
    return error_of([&] { parse_plan(replaced(good, from, to), "p"); });
  };
  EXPECT_TRUE(contains(error("\"version\":4", "\"version\":1"), "unknown key \"tile_work\""));
  EXPECT_TRUE(contains(error("[64,96]", "[64,0]"), "tile_work: tile"));
  EXPECT_TRUE(contains(error("[64,96]", "[64]"), "tile_work: tile"));
  EXPECT_TRUE(contains(error("\"calls\":3", "\"calls\":0"), "tile_work: backward: calls"));
  EXPECT_TRUE(contains(error("\"calls\":3,", ""), "calls"));
  EXPECT_TRUE(contains(error("\"partial\":7", "\"partial\":-7"), "tile_work: backward: partial"));
  EXPECT_TRUE(
      contains(error("\"backward\":{\"calls\":3,\"partial\":7,", "\"other\":{\"calls\":3,\"partial\":7,"), "other"));
  EXPECT_TRUE(
      contains(error(",\"backward\":{\"calls\":3,\"partial\":7,\"unmasked\":1099511627776}", ""), "one positive"));
  EXPECT_TRUE(contains(error("\"unit\":\"tiles\"", "\"unit\":\"bare\""), "unit is bare"));
}

TEST(PlanJson, a_file_before_version_4_carries_the_digest_of_its_time) {
  const std::string old =
      R"({"format":"flashmask.plan","version":3,"kind":"hcc_ipo","unit":"tiles","columns":11,"chunk":2,"ranks":3,)"
      R"("nodes":2,"peak":2160,"lower_bound":2160,"bound_by":"average","proven_optimal":true,"method":"hierarchy",)"
      R"("epsilon":0.01,"seed":"0000000000000000","assignment":[2,2,0,1,0,1],"loads":[2160,2080,2160],)"
      R"("inbound_chunks":[2,0],"outbound_chunks":[0,2],"traffic":{"inter_chunks":2,"intra_chunks":5,"inter_rows":4,)"
      R"("intra_rows":10},"chunk_loads":[1080,1080,1080,1080,1080,1000],"speeds":[],"tile_work":{"tile":[128,128],)"
      R"("forward":{"calls":1,"partial":1080,"unmasked":1000}},"needs":[{"weight":1,"rows":[[[0,1],[0,2],[0,3],[0,4],)"
      R"([0,5],[0,6]]]}],"digest":"5f27ef17600292cc"})";
  const Plan plan = parse_plan(old, "p");
  EXPECT_NE(plan.digest(), 0x5f27ef17600292ccU);
  EXPECT_EQ(parse_plan(plan_json(plan).dump(), "p"), plan);
  EXPECT_TRUE(contains(error_of([&] { parse_plan(replaced(old, "[0,3],", "[1,3],"), "p"); }), "digest"));
  const std::string text = "digest: \"5f27ef17600292cd\" but the content gives 5f27ef17600292cc";
  EXPECT_TRUE(contains(error_of([&] { parse_plan(replaced(old, "292cc", "292cd"), "p"); }), text));
  EXPECT_TRUE(contains(error_of([&] { parse_plan(replaced(old, "\"version\":3", "\"version\":4"), "p"); }), "digest"));
}

// A digest of that time walks over a bit a pair of chunks: 2 MB of text took 4 s here, 30 MB a quarter of an hour.
TEST(PlanJson, a_file_before_version_4_has_no_more_chunks_than_could_be_held_then) {
  constexpr int kChunks = 1 << 18;
  const auto list = [](const char* element) {
    std::string text = element;
    for (int i = 1; i < kChunks; ++i) (text += ',') += element;
    return "[" + text + "]";
  };
  const std::string huge =
      R"({"format":"flashmask.plan","version":3,"kind":"contiguous","unit":"cells","columns":262144,"chunk":1,)"
      R"("ranks":1,"nodes":1,"peak":0,"lower_bound":0,"bound_by":"average","proven_optimal":true,"method":"layout",)"
      R"("epsilon":0,"seed":"0000000000000000","loads":[0],"inbound_chunks":[0],"outbound_chunks":[0],"speeds":[],)"
      R"("traffic":{"inter_chunks":0,"intra_chunks":0,"inter_rows":0,"intra_rows":0},"digest":"0000000000000000",)"
      "\"assignment\":" +
      list("0") + ",\"chunk_loads\":" + list("0") + ",\"needs\":[{\"weight\":1,\"rows\":[" + list("[]") + "]}]}";
  EXPECT_TRUE(contains(error_of([&] { parse_plan(huge, "p"); }), "too large for a file of version 3"));
}

TEST(PlanJson, a_bound_by_residue_names_its_lattice_and_older_files_do_not) {
  flashmask::Workload w;
  w.ranks = 4;
  w.loads = {1207, 507, 1807, 2107, 907, 1107, 1607, 507, 1307, 107, 2307, 2038, 1407, 1507, 107, 1907};
  const Plan plan = balance(w);
  ASSERT_EQ(plan.record().bound_by, BoundBy::residue);
  ASSERT_EQ(plan.record().residue->rest, 7);
  std::string good = plan_json(plan).dump(0);
  EXPECT_EQ(parse_plan(good, "p"), plan);
  good.erase(good.rfind(",\"digest\""));
  good.push_back('}');
  PlanRecord r = plan.record();
  r.residue.reset();
  const Plan unnamed(r);
  EXPECT_NE(unnamed.digest(), plan.digest());
  EXPECT_EQ(first_difference(plan, unnamed), "residue: the bounds rest on two lattices");
  const std::string old = plan_json(unnamed).dump(0);
  EXPECT_EQ(parse_plan(old, "p"), unnamed);
  const auto error = [](const std::string& text) { return error_of([&] { parse_plan(text, "p"); }); };
  EXPECT_TRUE(contains(error(replaced(old, "\"version\":2", "\"version\":3")), "residue: missing"));
  EXPECT_TRUE(contains(error(replaced(good, "\"version\":4", "\"version\":2")), "unknown key \"residue\""));
  EXPECT_TRUE(contains(error(replaced(good, "\"bound_by\":\"residue\"", "\"bound_by\":\"average\"")),
                       "residue: it is what a bound by residue rests on, but bound_by is average"));
  EXPECT_TRUE(contains(error(replaced(good, "\"modulus\":", "\"modulus\":1,\"a\":")), "residue: modulus"));
  EXPECT_TRUE(contains(error(replaced(good, "\"rest\":7", "\"rest\":700000")), "residue: rest"));
  r.residue = ResidueLattice{100, 7, 38};
  EXPECT_EQ(parse_plan(plan_json(Plan(r)).dump(0), "p").record(), r);
  EXPECT_TRUE(contains(error(replaced(good, "\"rest\":7", "\"rest\":7,\"other\":7")),
                       "residue: modulus = 100, rest = 7, other = 7"));
  EXPECT_TRUE(contains(error(replaced(good, "\"rest\":7", "\"rest\":7,\"other\":-1")), "residue: other"));
}

TEST(PlanJson, a_unit_that_need_sets_and_tile_work_contradict_is_refused_by_the_key) {
  const auto texts = [] {
    std::vector<std::string> out;
    const ColumnMask mask = balancing::family_mask(Family::causal_document_8k, 16 << 10, 3);
    const WeightedMask masks[] = {{&mask, 1}};
    for (const WorkUnit unit : {WorkUnit::bare, WorkUnit::cells, WorkUnit::tiles}) {
      flashmask::Workload w;
      w.ranks = 2;
      w.loads = {5, 4, 3, 2};
      if (unit != WorkUnit::bare) w = make_workload(masks, {.ranks = 2, .unit = unit});
      std::string text = plan_json(balance(w)).dump(0);
      text.erase(text.rfind(",\"digest\""));
      out.push_back(text + "}");
    }
    return out;
  }();
  const char* names[] = {"bare", "cells", "tiles"};
  const char* keys[3][3] = {{"", "needs: none, but unit is cells", "needs: none, but unit is tiles"},
                            {"needs: sets of 1 masks, but unit is bare", "", "tile_work: missing; unit is tiles"},
                            {"needs: sets of 1 masks, but unit is bare", "tile_work says how tiles were counted", ""}};
  for (std::size_t from = 0; from < 3; ++from) {
    for (std::size_t to = 0; to < 3; ++to) {
      const std::string changed = replaced(texts[from], core::format("\"unit\":\"{}\"", names[from]),
                                           core::format("\"unit\":\"{}\"", names[to]));
      if (from == to) {
        EXPECT_NO_THROW(parse_plan(changed, "p")) << names[from];
      } else {
        EXPECT_TRUE(
            contains(error_of([&] { parse_plan(changed, "a.json"); }), core::format("a.json: {}", keys[from][to])));
      }
    }
  }
  PlanRecord r = parse_plan(texts[2], "p").record();
  r.tile_work.reset();  // as files of version 1 were
  const std::string old = plan_json(Plan(r)).dump(0);
  EXPECT_EQ(parse_plan(old, "p").record(), r);
  EXPECT_TRUE(contains(error_of([&] { parse_plan(replaced(old, "\"version\":1", "\"version\":2"), "p"); }),
                       "tile_work: missing"));
  r.unit = WorkUnit::bare;  // a plan, but none that a file can hold
  EXPECT_TRUE(contains(error_of([&] { plan_json(Plan(r)); }), "needs: sets of 1 masks, but unit is bare"));
}

TEST(PlanJson, an_epsilon_is_kept_exactly_or_refused) {
  const std::string good = plan_json(example(2)).dump();
  for (const char* epsilon : {"0.0123454", "1e-7", "0.99999999", "5e-324"}) {
    const std::string text = replaced(good, "\"epsilon\": 0.012345", std::string("\"epsilon\": ") + epsilon);
    EXPECT_TRUE(contains(error_of([&] { parse_plan(text, "p"); }), "is no whole number of millionths")) << epsilon;
  }
  for (const char* same : {"0.0123450", "1.2345e-2"}) {
    const std::string text = replaced(good, "\"epsilon\": 0.012345", std::string("\"epsilon\": ") + same);
    EXPECT_EQ(parse_plan(text, "p").record().epsilon_millionths, 12'345) << same;
  }
  PlanRecord r = example(2).record();
  for (std::int64_t millionths = 0; millionths <= 1'000'000; millionths += millionths < 1000 ? 1 : 997) {
    r.epsilon_millionths = millionths;
    ASSERT_EQ(parse_plan(plan_json(Plan(r)).dump(0), "p").record().epsilon_millionths, millionths);
  }
}

TEST(PlanJson, every_error_names_the_file) {
  const std::string good = plan_json(example(2)).dump();
  for (const auto& [from, to] :
       {std::pair{"\"peak\": ", "\"peak\": 1"}, std::pair{"\"ranks\": 4", "\"ranks\": 3"},
        std::pair{"\"version\": 4", "\"version\": 1e30"}, std::pair{"\"chunk_loads\": [", "\"chunk_loads\": [0.5, "}}) {
    EXPECT_TRUE(contains(error_of([&] { parse_plan(replaced(good, from, to), "dir/p.json"); }), "dir/p.json: ")) << to;
  }
  EXPECT_TRUE(
      contains(error_of([&] { parse_plan(replaced(good, "\"chunk_loads\": [", "\"chunk_loads\": [0.5, "), "p"); }),
               "element 0 is the number 0.5"));
}

TEST(PlanJson, every_prefix_and_every_changed_byte_is_parsed_or_refused) {
  const Plan plan = example(2);
  const std::string good = plan_json(plan).dump(0);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'\0', '9', '-', '[', '"'}) {
      std::string changed = good;
      changed[i] = c;
      try {
        // What is accepted says the same as before: nothing a reader relies on can change unnoticed.
        const Plan read = parse_plan(changed, "changed");
        ASSERT_EQ(read, plan) << "byte " << i;
      } catch (const Error&) {
      }
    }
    EXPECT_NE(error_of([&] { parse_plan(good.substr(0, i), "prefix"); }), "");
  }
}

TEST(PlanJson, the_corpus_of_the_fuzzer_is_parsed_or_refused) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FLASHMASK_SOURCE_DIR "/tests/fuzz/plan_corpus")) {
    const std::string text = read_file(entry.path().string());
    const std::string plan = error_of([&] { parse_plan(text, entry.path().filename().string()); });
    const std::string calibration = error_of([&] { parse_calibration(text, "calibration"); });
    EXPECT_LT(plan.size() + calibration.size(), 2000U);
    ++files;
  }
  EXPECT_GE(files, 5);
}

TEST(PlanJson, huge_claims_cost_nothing) {
  std::string text = plan_json(example(1)).dump();
  text = replaced(text, "\"columns\": 20480", "\"columns\": 1099511627776");
  EXPECT_NE(error_of([&] { parse_plan(text, "p"); }), "");
}

TEST(Calibration, costs_are_read_by_direction_and_strictly) {
  const DirectionCosts costs = parse_calibration(
      R"({"format":"flashmask.calibration","version":1,"backward":{"partial":2800,"unmasked":2600}})", "c");
  EXPECT_EQ(costs.forward.partial, DirectionCosts{}.forward.partial);
  EXPECT_EQ(costs.backward.partial, 2800);
  EXPECT_EQ(costs.backward.unmasked, 2600);
  EXPECT_TRUE(contains(error_of([] {
                         parse_calibration(
                             R"({"format":"flashmask.calibration","version":1,"forward":{"partial":-1,"unmasked":1}})",
                             "c");
                       }),
                       "forward: partial"));
}

}  // namespace
}  // namespace flashmask::format
