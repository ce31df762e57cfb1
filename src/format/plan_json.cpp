#include "format/plan_json.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "balance/digest.hpp"
#include "core/check.hpp"
#include "format/fields.hpp"

namespace flashmask::format {
namespace {

using core::check;
using core::fail;

constexpr std::int64_t kVersion = 4;                        // 1 had no tile_work, 2 no residue, 3 another digest
constexpr std::int64_t kDigestVersion = 4;                  // the first whose digest takes need sets as runs
constexpr std::int64_t kMostWords = std::int64_t{1} << 30;  // of need sets in an older digest; 8 GiB, then held as bits
constexpr std::int64_t kCalibrationVersion = 1;
constexpr std::int64_t kMostCost = 1'000'000'000;  // of a tile, in thousandths
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Json needs_json(const NeedSets& need) {
  Json::Array rows;
  for (std::int64_t b = 0; b < need.batch(); ++b) {
    Json::Array row;
    for (std::int64_t i = 0; i < need.chunks(); ++i) {
      Json::Integers runs;  // [begin, end, begin, end, ...]
      for (const ChunkRun& run : need.row(b, i)) runs.insert(runs.end(), {run.begin, run.end});
      row.emplace_back(std::move(runs));
    }
    rows.emplace_back(std::move(row));
  }
  Json value;
  value.set("weight", need.weight).set("rows", std::move(rows));
  return value;
}

/// Names of an enumeration, looked up with to_string.
template <typename Enum, std::size_t N>
Enum named(Fields& fields, std::string_view key, const std::array<Enum, N>& values) {
  const std::string text = fields.string(key);
  std::string known;
  for (const Enum value : values) {
    if (text == to_string(value)) return value;
    known += core::format("{}{}", known.empty() ? "" : ", ", to_string(value));
  }
  fail(ErrorCode::io, "{}: {} is none of {}", fields.path_of(key), printable(text), known);
}

Json::Integers integers(Fields& fields, std::string_view key, std::size_t most) {
  const Json& value = fields.required(key);
  if (value.integers() == nullptr && !(value.array() != nullptr && value.array()->empty())) {
    fail(ErrorCode::io, "{}: expected an array of integers, got {}", fields.path_of(key), value.kind());
  }
  const Json::Integers* list = value.integers();
  if (list == nullptr) return {};
  if (list->size() > most) fail(ErrorCode::io, "{}: {} entries, at most {}", fields.path_of(key), list->size(), most);
  return *list;
}

double number(const Json& value, const std::string& path) {
  if (value.number() != nullptr) return *value.number();
  if (value.integer() != nullptr) return static_cast<double>(*value.integer());
  fail(ErrorCode::io, "{}: expected a number, got {}", path, value.kind());
}

std::uint64_t hexadecimal(const std::string& text, const std::string& path) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || status != std::errc{} || end != text.data() + text.size()) {
    fail(ErrorCode::io, "{}: {} is not 16 hexadecimal digits", path, printable(text));
  }
  return value;
}

void parse_row(const Json& value, const std::string& path, NeedRuns& need, std::int64_t b, std::int64_t i) {
  if (value.array() != nullptr && value.array()->empty()) return;
  const Json::Integers* runs = value.integers();
  if (runs == nullptr || runs->size() % 2 != 0) {
    fail(ErrorCode::io, "{}: expected an even number of integers, got {}", path, value.kind());
  }
  std::int64_t last = -1;
  for (std::size_t k = 0; k < runs->size(); k += 2) {
    const std::int64_t begin = (*runs)[k], end = (*runs)[k + 1];
    if (begin <= last || end <= begin || end > need.column_chunks()) {
      fail(ErrorCode::io, "{}: the run [{}, {}) is empty, out of order or outside [0, {})", path, begin, end,
           need.column_chunks());
    }
    need.add(b, i, {static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)});
    last = end;
  }
}

NeedSets parse_needs(const Json& value, const std::string& path, std::int64_t chunks) {
  Fields fields(value, path);
  const std::int64_t weight = fields.integer("weight", {1, kMostLayers});
  const Json& rows = fields.required("rows");
  fields.finish();
  if (rows.integers() != nullptr && rows.integers()->empty()) return NeedSets(NeedRuns(0, chunks, chunks), weight);
  if (rows.array() == nullptr) {
    fail(ErrorCode::io, "{}: expected an array, got {}", fields.path_of("rows"), rows.kind());
  }
  NeedRuns need(static_cast<std::int64_t>(rows.array()->size()), chunks, chunks);
  std::int64_t b = 0;
  for_each_at(rows, fields.path_of("rows"), 1 << 20, [&](const Json& row, const std::string& at) {
    const bool none = row.integers() != nullptr && row.integers()->empty();
    if (!none && (row.array() == nullptr || static_cast<std::int64_t>(row.array()->size()) != chunks)) {
      fail(ErrorCode::io, "{}: expected an array of {} rows, got {}", at, chunks, row.kind());
    }
    if (none && chunks != 0) fail(ErrorCode::io, "{}: expected {} rows, got none", at, chunks);
    std::int64_t i = 0;
    if (row.array() != nullptr) {
      for (const Json& runs : *row.array()) parse_row(runs, core::format("{}[{}]", at, i), need, b, i), ++i;
    }
    ++b;
  });
  return NeedSets(std::move(need), weight);
}

/// {"tile": [rows, columns], "forward": {"calls", "partial", "unmasked"}, "backward": {...}}; a direction that is not
/// counted is absent.
Json tile_work_json(const TileWork& work) {
  Json value;
  value.set("tile", Json::Integers{work.tile_shape.block_m, work.tile_shape.block_n});
  const auto add = [&](const char* name, std::int64_t calls, const TileCosts& costs) {
    if (calls == 0) return;
    Json one;
    one.set("calls", calls).set("partial", costs.partial).set("unmasked", costs.unmasked);
    value.set(name, std::move(one));
  };
  add("forward", work.forward_weight, work.costs.forward);
  add("backward", work.backward_weight, work.costs.backward);
  return value;
}

TileWork parse_tile_work(const Json& value, const std::string& path) {
  constexpr std::int64_t kLongestTile = std::numeric_limits<std::int32_t>::max();
  Fields fields(value, path);
  TileWork work{.costs = {{0, 0}, {0, 0}}, .forward_weight = 0, .backward_weight = 0};
  const Json::Integers tile = integers(fields, "tile", 2);
  if (tile.size() != 2 || std::min(tile[0], tile[1]) < 1 || std::max(tile[0], tile[1]) > kLongestTile) {
    fail(ErrorCode::io, "{}: expected rows and columns of a tile, both from 1 to {}", fields.path_of("tile"),
         kLongestTile);
  }
  work.tile_shape = {static_cast<std::int32_t>(tile[0]), static_cast<std::int32_t>(tile[1])};
  const auto read = [&](const char* name, std::int64_t& calls, TileCosts& costs) {
    const Json* given = fields.optional(name);
    if (given == nullptr) return;
    Fields one(*given, fields.path_of(name));
    calls = one.integer("calls", {1, kMost});
    costs.partial = one.integer("partial", {0, kMost});
    costs.unmasked = one.integer("unmasked", {0, kMost});
    one.finish();
  };
  read("forward", work.forward_weight, work.costs.forward);
  read("backward", work.backward_weight, work.costs.backward);
  fields.finish();
  return work;
}

ResidueLattice parse_residue(const Json& value, const std::string& path) {
  Fields fields(value, path);
  const std::int64_t modulus = fields.integer("modulus", {2, kMost});
  const std::int64_t rest = fields.integer("rest", {0, modulus - 1});
  const std::optional<std::int64_t> other = fields.optional_integer("other", {0, modulus - 1});
  fields.finish();
  return {modulus, rest, other.value_or(-1)};
}

/// Unit, need sets and the count of tiles come together: loads of masks have the need sets of these masks, bare numbers
/// have neither, and tiles say how they were counted (from version 2 on).
void check_unit(const PlanRecord& r, std::int64_t version) {
  check(r.unit != WorkUnit::bare || r.needs.empty(),
        "needs: sets of {} masks, but unit is bare; loads of masks are cells or tiles, and bare numbers have no needs",
        r.needs.size());
  check(r.unit == WorkUnit::bare || !r.needs.empty(),
        "needs: none, but unit is {}; such loads are of masks and come with their need sets, only bare numbers do not",
        to_string(r.unit));
  check(r.unit != WorkUnit::tiles || r.tile_work || version < 2,
        "tile_work: missing; unit is tiles, and from version 2 on such a plan says how they were counted");
}

/// The latest version that holds all of `r`: plans from older files lack what these did not have.
std::int64_t version_of(const PlanRecord& r) {
  if (r.residue) return kVersion;
  if (r.unit == WorkUnit::tiles && !r.tile_work) return 1;
  return r.bound_by == BoundBy::residue ? 2 : kVersion;
}

/// What only later versions hold: read where `version` can have it, and required where it always did.
void parse_grounds(Fields& fields, std::int64_t version, PlanRecord& r) {
  if (version >= 2) {
    if (const Json* work = fields.optional("tile_work"))
      r.tile_work = parse_tile_work(*work, fields.path_of("tile_work"));
  }
  if (version >= 3) {
    if (const Json* lattice = fields.optional("residue"))
      r.residue = parse_residue(*lattice, fields.path_of("residue"));
    if (r.bound_by == BoundBy::residue && !r.residue) {
      fail(ErrorCode::io, "{}: missing; a bound by residue names its modulus and rest from version 3 on",
           fields.path_of("residue"));
    }
  }
}

std::uint64_t digest_of(const Plan& plan, std::int64_t version) {
  return version < kDigestVersion ? balancing::plan_digest_before_4(plan.record()) : plan.digest();
}

/// An older digest takes a time that is quadratic in the chunks, and a short file may claim millions of them.
void check_digest_size(const Plan& plan, std::int64_t version, const std::string& path) {
  std::int64_t rows = 0;
  for (const NeedSets& need : plan.record().needs) rows += need.batch() * need.chunks();
  if (version >= kDigestVersion || rows <= kMostWords / (plan.chunks() / 64 + 1)) return;
  fail(ErrorCode::io, "{}: need sets of {} rows of {} chunks are too large for a file of version {}; plan again", path,
       rows, plan.chunks(), version);
}

/// Members that follow from the rest: refused when they say something else.
void check_derived(Fields& fields, const Plan& plan, std::int64_t version) {
  for (const auto& [key, expected] : {std::pair{"imbalance", plan.imbalance()}, std::pair{"gap", plan.gap()}}) {
    const Json* value = fields.optional(key);
    if (value == nullptr) continue;
    const double given = number(*value, fields.path_of(key));
    if (!(std::abs(given - expected) <= 1e-9 * std::max(1.0, expected))) {
      fail(ErrorCode::io, "{}: {} but the loads give {}", fields.path_of(key), given, expected);
    }
  }
  const std::optional<std::string> digest = fields.optional_string("digest");
  if (digest) check_digest_size(plan, version, fields.path_of("digest"));
  if (digest && hexadecimal(*digest, fields.path_of("digest")) != digest_of(plan, version)) {
    fail(ErrorCode::io, "{}: {} but the content gives {:016x}", fields.path_of("digest"), printable(*digest),
         digest_of(plan, version));
  }
}

}  // namespace

Json plan_json(const Plan& plan, std::optional<std::int64_t> time_us) {
  const PlanRecord& r = plan.record();
  Json value;
  check_unit(r, version_of(r));
  value.set("format", "flashmask.plan").set("version", version_of(r));
  value.set("kind", to_string(r.kind)).set("unit", to_string(r.unit));
  value.set("columns", r.columns).set("chunk", r.chunk).set("ranks", r.ranks).set("nodes", r.nodes);
  value.set("peak", r.peak).set("lower_bound", r.lower_bound).set("bound_by", to_string(r.bound_by));
  value.set("proven_optimal", r.proven_optimal).set("method", to_string(r.method));
  value.set("imbalance", plan.imbalance()).set("gap", plan.gap());
  value.set("epsilon", static_cast<double>(r.epsilon_millionths) / 1e6);
  value.set("seed", core::format("{:016x}", r.seed));
  if (time_us) value.set("time_us", *time_us);
  value.set("assignment", r.assignment).set("loads", r.loads);
  value.set("inbound_chunks", r.inbound).set("outbound_chunks", r.outbound);
  Json traffic;
  traffic.set("inter_chunks", r.traffic.inter_chunks).set("intra_chunks", r.traffic.intra_chunks);
  traffic.set("inter_rows", r.traffic.inter_rows).set("intra_rows", r.traffic.intra_rows);
  value.set("traffic", std::move(traffic));
  value.set("chunk_loads", r.chunk_loads).set("speeds", r.speeds);
  if (r.tile_work) value.set("tile_work", tile_work_json(*r.tile_work));
  if (r.residue) {
    Json lattice;
    lattice.set("modulus", r.residue->modulus).set("rest", r.residue->rest);
    if (r.residue->other >= 0) lattice.set("other", r.residue->other);
    value.set("residue", std::move(lattice));
  }
  Json::Array needs;
  for (const NeedSets& need : r.needs) needs.push_back(needs_json(need));
  value.set("needs", std::move(needs));
  value.set("digest", core::format("{:016x}", digest_of(plan, version_of(r))));
  return value;
}

Plan parse_plan(std::string_view text, std::string_view source) {
  const Json value = parse_json(text, source);
  Fields fields(value, std::string(source));
  const std::int64_t version = fields.header("flashmask.plan", kVersion);
  PlanRecord r;
  r.kind = named(fields, "kind",
                 std::array{PlanKind::hcc_ipo, PlanKind::contiguous, PlanKind::dual_chunk,
                            PlanKind::per_document_dual_chunk, PlanKind::lpt});
  r.unit = named(fields, "unit", std::array{WorkUnit::bare, WorkUnit::cells, WorkUnit::tiles});
  r.columns = fields.integer("columns", {0, std::int64_t{1} << 40});
  r.chunk = fields.integer("chunk", {1, std::int64_t{1} << 30});
  r.ranks = fields.integer("ranks", {1, kMostRanks});
  r.nodes = fields.integer("nodes", {1, r.ranks});
  r.peak = fields.integer("peak", {0, kMost});
  r.lower_bound = fields.integer("lower_bound", {0, kMost});
  r.bound_by = named(fields, "bound_by",
                     std::array{BoundBy::average, BoundBy::pigeonhole, BoundBy::covering, BoundBy::incompatible,
                                BoundBy::residue, BoundBy::search, BoundBy::counts});
  const Json& proven = fields.required("proven_optimal");
  if (proven.boolean() == nullptr) {
    fail(ErrorCode::io, "{}: expected true or false, got {}", fields.path_of("proven_optimal"), proven.kind());
  }
  r.proven_optimal = *proven.boolean();
  r.method = named(fields, "method",
                   std::array{PlanMethod::layout, PlanMethod::lpt, PlanMethod::bldm, PlanMethod::pairs,
                              PlanMethod::triples, PlanMethod::exact, PlanMethod::hierarchy, PlanMethod::fill});
  const double epsilon = number(fields.required("epsilon"), fields.path_of("epsilon"));
  if (!(epsilon >= 0 && epsilon <= 1))
    fail(ErrorCode::io, "{}: {} is not in [0, 1]", fields.path_of("epsilon"), epsilon);
  r.epsilon_millionths = std::llround(epsilon * 1e6);
  if (static_cast<double>(r.epsilon_millionths) / 1e6 != epsilon) {
    fail(ErrorCode::io, "{}: {} is no whole number of millionths", fields.path_of("epsilon"), epsilon);
  }
  r.seed = hexadecimal(fields.string("seed"), fields.path_of("seed"));
  fields.optional_integer("time_us", {0, kMost});
  r.assignment = integers(fields, "assignment", kMostChunks);
  r.loads = integers(fields, "loads", kMostRanks);
  r.inbound = integers(fields, "inbound_chunks", kMostRanks);
  r.outbound = integers(fields, "outbound_chunks", kMostRanks);
  Fields traffic(fields.required("traffic"), fields.path_of("traffic"));
  r.traffic = {traffic.integer("inter_chunks", {0, kMost}), traffic.integer("intra_chunks", {0, kMost}),
               traffic.integer("inter_rows", {0, kMost}), traffic.integer("intra_rows", {0, kMost})};
  traffic.finish();
  r.chunk_loads = integers(fields, "chunk_loads", kMostChunks);
  r.speeds = integers(fields, "speeds", kMostRanks);
  parse_grounds(fields, version, r);
  const std::int64_t chunks = static_cast<std::int64_t>(r.assignment.size());
  const Json& needs = fields.required("needs");
  if (!(needs.integers() != nullptr && needs.integers()->empty())) {
    for_each_at(needs, fields.path_of("needs"), 1024,
                [&](const Json& need, const std::string& path) { r.needs.push_back(parse_needs(need, path, chunks)); });
  }
  const Plan plan = naming(source, [&] {
    check_unit(r, version);
    return Plan(std::move(r));
  });
  check_derived(fields, plan, version);
  fields.finish();
  return plan;
}

DirectionCosts parse_calibration(std::string_view text, std::string_view source) {
  const Json value = parse_json(text, source);
  Fields fields(value, std::string(source));
  fields.header("flashmask.calibration", kCalibrationVersion);
  DirectionCosts costs;
  for (const auto& [key, direction] : {std::pair{"forward", &costs.forward}, std::pair{"backward", &costs.backward}}) {
    const Json* given = fields.optional(key);
    if (given == nullptr) continue;
    Fields one(*given, fields.path_of(key));
    direction->partial = one.integer("partial", {0, kMostCost});
    direction->unmasked = one.integer("unmasked", {0, kMostCost});
    one.finish();
  }
  fields.finish();
  return costs;
}

}  // namespace flashmask::format
