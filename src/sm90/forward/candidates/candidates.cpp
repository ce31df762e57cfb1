#include "sm90/forward/candidates/candidates.hpp"

#include <string>

#include "core/check.hpp"
#include "sm90/forward/candidates/configs.hpp"

namespace flashmask::sm90::forward_pass {
namespace {

constexpr Candidate table[] = {
    {"every_lane", every_lane(), TileRule::minmax, launch_every_lane},
    {"pack8_n80", form_of(80, 8, 1), TileRule::minmax, launch_pack8_n80},
    {"pack8_n64", form_of(64, 8, 1), TileRule::minmax, launch_pack8_n64},
    {"pack64_n80", form_of(80, 64, 1), TileRule::minmax, launch_pack64_n80},
    {"any_n80", form_of(80, 1, 5), TileRule::minmax, launch_any_n80},
    {"any_n64", form_of(64, 1, 4), TileRule::minmax, launch_any_n64},
    {"pack8_any_n80", form_of(80, 8, 5), TileRule::minmax, launch_pack8_any_n80},
    {"pack8_any_n64", form_of(64, 8, 4), TileRule::minmax, launch_pack8_any_n64},
    {"exact_n80", form_of(80, 1, 1), TileRule::exact, launch_d128_bf16},
    {"exact_n64", form_of(64, 1, 1), TileRule::exact, launch_d128_bf16_n64},
};

}  // namespace

bool Candidate::takes(const AttentionShape& shape, std::int64_t mask_heads) const {
  const std::int64_t packed = config.packed_heads;
  return shape.query_heads / shape.kv_heads % packed == 0 && shape.query_heads / mask_heads % packed == 0 &&
         shape.head_dim > 64 && shape.head_dim <= config.head_dim;
}

std::span<const Candidate> candidates() {
  return table;
}

const Candidate& candidate_named(std::string_view name) {
  std::string names;
  for (const Candidate& candidate : table) {
    if (candidate.name == name) return candidate;
    names += std::string(names.empty() ? "" : ", ") + std::string(candidate.name);
  }
  core::fail(ErrorCode::invalid_argument, "no candidate is called {}; there are {}", name, names);
}

void forward(const Candidate& candidate, const ForwardArguments& arguments) {
  const ForwardConfig& c = candidate.config;
  core::check(arguments.map != nullptr, "map is null; build one of the candidate's tile and form");
  const TileMapView& map = *arguments.map;
  core::check(
      map.block_m == c.mask_rows() && map.block_n == c.block_n && map.packed_heads == c.packed_heads &&
          map.column_units == c.column_units,
      "the tile map has tiles of {}x{}, {} packed heads and {} units a block, candidate {} takes {}x{}, {} and {}",
      map.block_m, map.block_n, map.packed_heads, map.column_units, candidate.name, c.mask_rows(), c.block_n,
      c.packed_heads, c.column_units);
  // The rest is what forward() asks of a call whose map is plain.
  TileMapView plain = map;
  plain.block_m = c.block_m(), plain.packed_heads = 1, plain.column_units = 1;
  ForwardArguments as_plain = arguments;
  as_plain.map = &plain;
  validate(as_plain);
  core::check(
      candidate.takes(arguments.shape, map.heads),
      "candidate {} packs {} heads, which must divide the query heads of a KV head and of a mask head: {} query "
      "heads, {} KV heads, {} mask heads",
      candidate.name, c.packed_heads, arguments.shape.query_heads, arguments.shape.kv_heads, map.heads);
  core::check(arguments.q.dtype == DType::bf16 && !arguments.arrival, "candidates take bf16 and no chunk arrival");
  launch(arguments, c, candidate.kernel);
}

}  // namespace flashmask::sm90::forward_pass
