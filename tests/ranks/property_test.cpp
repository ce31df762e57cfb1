// Any mask, any plan, any number of ranks and nodes: the results of one device, and exactly the planned bytes.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/check.hpp"
#include "ranks/ranks_support.hpp"

namespace flashmask {
namespace {

using std::int64_t;
using testing::Call;
using testing::Random;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kDraws = 40;
#else
constexpr int64_t kDraws = 500;
#endif

/// Uneven documents that fill `rows`, cut anywhere.
std::vector<int64_t> random_documents(Random& random, int64_t rows) {
  std::vector<int64_t> lengths;
  for (int64_t left = rows; left > 0;) {
    lengths.push_back(random.one_in(5) ? left : random.integer(1, std::max<int64_t>(1, left / 2)));
    left -= lengths.back();
  }
  return lengths;
}

/// Raw four vectors, or any builder over packed uneven documents.
ColumnMask draw_mask(Random& random, int64_t batch, int64_t heads, int64_t rows,
                     const std::vector<int64_t>& documents) {
  const auto names = masks::builder_names();
  if (random.one_in(3)) return testing::random_mask({batch, heads, rows, rows}, random);
  const std::string_view name =
      names[static_cast<std::size_t>(random.integer(0, static_cast<int64_t>(names.size()) - 1))].name;
  masks::BuilderOptions options;
  options.rows = rows;
  options.batch = batch;
  options.mask_heads = heads;
  options.seed = static_cast<std::uint64_t>(random.integer(0, 1000));
  options.documents = masks::documents_of(documents);
  if (name == "prefix_tree") options.trees = {{{{}, rows / 2}, {0, rows / 4}, {0, rows - rows / 2 - rows / 4}}};
  try {
    return masks::build(name, options);
  } catch (const Error&) {  // a builder that does not serve this size
    return masks::causal_document({batch, heads, rows, rows}, masks::documents_of(documents));
  }
}

struct Draw {
  ColumnMask mask;
  Plan plan;
  AttentionShape shape;
  ContextParallelOptions options;
  DType dtype;
  std::string text;
};

Draw draw(int64_t step) {
  Random random(static_cast<std::uint64_t>(31'000 + step));
  Draw d;
  const int64_t rows = random.integer(1, 8 + step * 90 / kDraws);
  const int64_t kv_heads = random.integer(1, 2);
  const int64_t dims[] = {1, 4, 7, 8, 16, 32};
  d.shape = {random.integer(1, 3), rows, rows, kv_heads * random.integer(1, 2), kv_heads, dims[random.integer(0, 5)]};
  const int64_t heads[] = {1, kv_heads, d.shape.query_heads};
  const auto documents = random_documents(random, rows);
  d.mask = draw_mask(random, d.shape.batch, heads[random.integer(0, 2)], rows, documents);
  const int64_t special[] = {3, 5, 6, 12};
  const int64_t ranks = random.one_in(3) ? special[random.integer(0, 3)] : random.integer(1, 16);
  const int64_t nodes = random.integer(1, std::min<int64_t>(4, ranks));
  const int64_t chunk = random.integer(1, std::max<int64_t>(1, 2 * rows / ranks));
  const PlanKind kinds[] = {PlanKind::hcc_ipo, PlanKind::contiguous, PlanKind::dual_chunk, PlanKind::lpt,
                            PlanKind::per_document_dual_chunk};
  PlanKind kind = kinds[random.integer(0, 4)];
  try {
    d.plan = testing::plan_of(d.mask, ranks, nodes, chunk, kind, documents);
  } catch (const Error&) {  // a layout that cannot hold these sizes
    kind = PlanKind::hcc_ipo;
    d.plan = testing::plan_of(d.mask, ranks, nodes, chunk, kind);
  }
  d.options.prune = !random.one_in(8);
  d.options.routing = random.one_in(8) ? Routing::direct : Routing::hierarchical;
  d.options.landing = random.one_in(3) ? Landing::lowest : Landing::balanced;
  d.options.visit_order = random.one_in(3) ? VisitOrder::ascending : VisitOrder::planned;
  d.options.keep_keys = random.one_in(3);
  d.options.threads = random.one_in(4) ? 2 : 1;
  d.dtype = static_cast<DType>(random.integer(0, 2));
  d.text = core::format(
      "draw {}: {} rows, batch {}, heads {}:{}:{}, dim {}, {}, {} ranks on {} nodes, chunk {}, plan {}, "
      "prune {}, routing {}, order {}, keep {}",
      step, rows, d.shape.batch, d.shape.query_heads, kv_heads, d.mask.shape().heads, d.shape.head_dim,
      to_string(d.dtype), ranks, nodes, chunk, to_string(kind), d.options.prune, static_cast<int>(d.options.routing),
      static_cast<int>(d.options.visit_order), d.options.keep_keys);
  return d;
}

TEST(Ranks, any_problem_equals_the_oracle_and_sends_what_was_planned) {
  for (int64_t step = 0; step < kDraws; ++step) {
    const Draw d = draw(step);
    SCOPED_TRACE(d.text);
    Call call(d.shape, d.mask, d.dtype, testing::Layout::bshd, static_cast<std::uint64_t>(step));
    comm::LocalWorld world(testing::world_options(d.plan));
    testing::run_on_ranks(call, d.plan, world, d.options, step % 10 == 0 ? 2 : 1);
    testing::expect_matches_oracle(call);
    if (::testing::Test::HasFailure()) FAIL() << testing::describe(d.mask);
  }
}

std::vector<std::uint8_t> forward_bytes(const Call& call) {
  std::vector<std::uint8_t> all = call.out.bytes();
  const auto* lse = reinterpret_cast<const std::uint8_t*>(call.lse.data());
  all.insert(all.end(), lse, lse + call.lse.size() * sizeof(float));
  return all;
}

TEST(Ranks, ascending_order_gives_the_bits_of_one_device_at_any_number_of_ranks) {
  const std::vector<int64_t> documents{100, 233, 7, 190, 77};
  const int64_t rows = 607;  // the last of ten chunks has 31 rows
  const auto mask = testing::causal_documents(documents, rows);
  Call one({1, rows, rows, 2, 1, 32}, mask, DType::bf16);
  one.run();
  const auto expected = forward_bytes(one);
  for (const int64_t ranks : {1, 2, 3, 5, 8}) {
    if (kDraws < 100 && ranks != 3) continue;  // under a sanitizer
    for (const PlanKind kind : {PlanKind::hcc_ipo, PlanKind::contiguous}) {
      const Plan plan = testing::plan_of(mask, ranks, ranks > 3 ? 2 : 1, 64, kind);
      Call call({1, rows, rows, 2, 1, 32}, mask, DType::bf16);
      comm::LocalWorld world(testing::world_options(plan));
      ContextParallelOptions options;
      options.visit_order = VisitOrder::ascending;
      testing::run_on_ranks(call, plan, world, options);
      EXPECT_EQ(forward_bytes(call), expected) << ranks << " ranks, plan " << to_string(kind);
      testing::expect_matches_oracle(call);
    }
  }
}

TEST(Ranks, planned_order_gives_the_same_bits_whatever_the_timing) {
  const std::vector<int64_t> documents{31, 90, 5, 66};
  const auto mask = testing::causal_documents(documents, 192, 2);
  const Plan plan = testing::plan_of(mask, 6, 2, 8, PlanKind::hcc_ipo);
  std::vector<std::uint8_t> first;
  for (int run = 0; run < 6; ++run) {
    Call call({2, 192, 192, 4, 2, 16}, mask, DType::bf16);
    auto options = testing::world_options(plan);
    options.faults = [run](const comm::MessageInfo& m) {
      const auto hash =
          (static_cast<std::uint64_t>(m.from) * 31 + m.to * 17 + m.tag.chunk * 5 + run * 13 + m.value) % 7;
      if (run == 0 || hash > 3) return comm::Fault{};
      if (hash == 0) return comm::Fault{comm::Fault::Kind::late, std::chrono::milliseconds(1)};
      return comm::Fault{comm::Fault::Kind::held};
    };
    comm::LocalWorld world(options);
    testing::run_on_ranks(call, plan, world);
    if (run == 0) {
      first = call.result_bytes();
      testing::expect_matches_oracle(call);
    }
    EXPECT_EQ(call.result_bytes(), first) << "run " << run;
  }
}

}  // namespace
}  // namespace flashmask
