#include "flashmask/mask.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "capi/boundary.hpp"
#include "capi/handles.hpp"
#include "flashmask/builders.hpp"
#include "flashmask/tile.hpp"

namespace flashmask::capi {
namespace {

/// Refuses extents out of range, before any array of the caller is touched.
MaskShape shape_of(const flashmask_mask_shape& s) {
  constexpr std::int64_t extent_limit = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t vector_limit = std::int64_t{1} << 40;  // that of ColumnMask
  for (const auto& [name, value] : {std::pair("batch", s.batch), std::pair("heads", s.heads), std::pair("rows", s.rows),
                                    std::pair("columns", s.columns)}) {
    core::check(value >= 0 && value <= extent_limit, "shape.{} is {}: expected 0 to {}, row numbers are int32", name,
                value, extent_limit);
  }
  const std::int64_t vectors = s.batch * s.heads;
  core::check(vectors == 0 || s.columns <= vector_limit / vectors,
              "shape.batch x heads x columns is {} x {} x {}: expected at most {} columns in all", s.batch, s.heads,
              s.columns, vector_limit);
  return {s.batch, s.heads, s.rows, s.columns};
}

std::vector<std::int32_t> copy_of(const std::int32_t* values, std::int64_t count, const char* name) {
  if (count == 0) return {};
  const std::int32_t* begin = &required(values, name);
  return {begin, begin + count};
}

void hand_out(ColumnMask value, flashmask_mask** mask) {
  value.canonicalise();
  const std::uint64_t digest = value.digest();
  *mask = new flashmask_mask{std::move(value), digest};
}

/// An optional count of the C ABI: 0 is the builder's default, -1 says 0.
std::optional<std::int64_t> count_of(std::int64_t value, const char* name) {
  core::check(value >= -1, "{} is {}: expected a count, 0 (the builder's default) or -1 (none)", name, value);
  if (value == 0) return std::nullopt;
  return std::max<std::int64_t>(value, 0);
}

masks::BuilderOptions options_of(const flashmask_mask_options& o) {
  masks::BuilderOptions options;
  options.rows = o.rows;
  if (o.columns != 0) options.columns = o.columns;
  if (o.batch != 0) options.batch = o.batch;
  if (o.heads != 0) options.mask_heads = o.heads;
  options.window = count_of(o.window, "options.window");
  options.prefix = count_of(o.prefix, "options.prefix");
  options.global = count_of(o.global_tokens, "options.global_tokens").value_or(options.global);
  options.seed = o.seed;
  core::check(o.documents == nullptr || o.document_count > 0,
              "options.document_count is 0 but options.documents is given: set the count, or NULL for the default");
  if (o.document_count > 0) {
    std::vector<masks::Document> documents;
    for (const auto& d : std::span(&required(o.documents, "options.documents"), o.document_count)) {
      masks::Document document{d.length};
      document.prefix = count_of(d.prefix, "options.documents[].prefix");
      documents.push_back(document);
    }
    options.documents = std::move(documents);
  }
  return options;
}

TileRule rule_of(std::int32_t rule) {
  switch (rule) {
    case FLASHMASK_RULE_MINMAX:
      return TileRule::minmax;
    case FLASHMASK_RULE_EXACT:
      return TileRule::exact;
  }
  core::fail(ErrorCode::invalid_argument, "rule is {}: expected FLASHMASK_RULE_MINMAX (0) or FLASHMASK_RULE_EXACT (1)",
             rule);
}

void check_head(const ColumnMask& mask, std::int64_t batch, std::int64_t head) {
  const auto& s = mask.shape();
  core::check(batch >= 0 && batch < s.batch, "batch is {}: expected 0 <= batch < {}", batch, s.batch);
  core::check(head >= 0 && head < s.heads, "head is {}: expected 0 <= head < {}", head, s.heads);
}

}  // namespace
}  // namespace flashmask::capi

using flashmask::ColumnMask;
using flashmask::capi::guarded;
using flashmask::capi::required;

extern "C" {

flashmask_status flashmask_mask_create(flashmask_mask_shape shape, const int32_t* lts, const int32_t* lte,
                                       const int32_t* uts, const int32_t* ute, flashmask_mask** mask) {
  return guarded([&] {
    required(mask, "mask");
    const auto s = flashmask::capi::shape_of(shape);
    const auto n = s.vector_size();
    using flashmask::capi::copy_of;
    std::vector<std::vector<int32_t>> v;
    for (const auto& [values, vector_name] :
         {std::pair(lts, "lts"), std::pair(lte, "lte"), std::pair(uts, "uts"), std::pair(ute, "ute")}) {
      v.push_back(copy_of(values, n, vector_name));
    }
    flashmask::capi::hand_out(ColumnMask(s, std::move(v[0]), std::move(v[1]), std::move(v[2]), std::move(v[3])), mask);
  });
}

flashmask_status flashmask_mask_from_startend_row_indices(flashmask_mask_shape shape, const int32_t* indices,
                                                          int32_t bounds, int32_t causal, flashmask_mask** mask) {
  return guarded([&] {
    required(mask, "mask");
    const auto s = flashmask::capi::shape_of(shape);
    flashmask::core::check(bounds == 1 || bounds == 2 || bounds == 4,
                           "bounds is {}: accepted are (causal, 1), (causal, 2), (not causal, 2), (not causal, 4)",
                           bounds);
    const auto n = static_cast<std::size_t>(s.vector_size() * bounds);
    const auto values = n == 0 ? std::span<const int32_t>() : std::span(&required(indices, "indices"), n);
    flashmask::capi::hand_out(flashmask::masks::from_startend_row_indices(s, causal != 0, bounds, values), mask);
  });
}

flashmask_status flashmask_mask_build(const char* name, const flashmask_mask_options* options, flashmask_mask** mask) {
  return guarded([&] {
    required(mask, "mask");
    const auto o = flashmask::capi::sized_copy(options, "options");
    flashmask::capi::hand_out(flashmask::masks::build(&required(name, "name"), flashmask::capi::options_of(o)), mask);
  });
}

const char* flashmask_builder_name(size_t i) {
  const auto names = flashmask::masks::builder_names();
  return i < names.size() ? names[i].name.data() : nullptr;  // string literals: zero-terminated
}

void flashmask_mask_destroy(flashmask_mask* mask) {
  delete mask;
}

flashmask_status flashmask_mask_get_shape(const flashmask_mask* mask, flashmask_mask_shape* shape) {
  return guarded([&] {
    const auto& s = required(mask, "mask").value.shape();
    required(shape, "shape") = {s.batch, s.heads, s.rows, s.columns};
  });
}

flashmask_status flashmask_mask_visible_cells(const flashmask_mask* mask, int64_t* cells) {
  return guarded([&] { required(cells, "cells") = required(mask, "mask").value.visible_cells(); });
}

flashmask_status flashmask_mask_digest(const flashmask_mask* mask, uint64_t* digest) {
  return guarded([&] { required(digest, "digest") = required(mask, "mask").digest; });
}

flashmask_status flashmask_mask_row_counts(const flashmask_mask* mask, int64_t batch, int64_t head, int64_t* counts) {
  return guarded([&] {
    const auto& value = required(mask, "mask").value;
    flashmask::capi::check_head(value, batch, head);
    const auto rows = value.row_counts(batch, head);
    if (!rows.empty()) std::ranges::copy(rows, &required(counts, "counts"));
  });
}

flashmask_status flashmask_mask_export_vectors(const flashmask_mask* mask, int32_t* lts, int32_t* lte, int32_t* uts,
                                               int32_t* ute) {
  return guarded([&] {
    const auto& value = required(mask, "mask").value;
    const auto copy = [](std::span<const int32_t> from, int32_t* to) {
      if (to != nullptr) std::ranges::copy(from, to);
    };
    copy(value.lts(), lts);
    copy(value.lte(), lte);
    copy(value.uts(), uts);
    copy(value.ute(), ute);
  });
}

flashmask_status flashmask_mask_export_dense(const flashmask_mask* mask, int64_t batch, int64_t head,
                                             uint8_t* visible) {
  return guarded([&] {
    const auto& value = required(mask, "mask").value;
    flashmask::capi::check_head(value, batch, head);
    const auto dense = value.dense(batch, head);
    if (!dense.empty()) std::ranges::copy(dense, &required(visible, "visible"));
  });
}

flashmask_status flashmask_mask_tile_statistics(const flashmask_mask* mask, int32_t block_m, int32_t block_n,
                                                int32_t rule, flashmask_tile_statistics* statistics) {
  return guarded([&] {
    const auto& value = required(mask, "mask").value;
    auto& out = required(statistics, "statistics");
    const auto counts = flashmask::TileMap::build(value, {block_m, block_n}, flashmask::capi::rule_of(rule)).counts();
    const auto total = counts.total();
    out = {counts.masked, counts.partial, counts.unmasked, flashmask::element_density(value),
           total == 0 ? 1.0 : static_cast<double>(counts.partial + counts.unmasked) / static_cast<double>(total)};
  });
}

flashmask_status flashmask_tile_map_create(const flashmask_mask* mask, int32_t block_m, int32_t block_n, int32_t rule,
                                           flashmask_tile_map** map) {
  return guarded([&] {
    required(map, "map");
    const flashmask_mask& from = required(mask, "mask");
    *map = new flashmask_tile_map{
        flashmask::TileMap::build(from.value, {block_m, block_n}, flashmask::capi::rule_of(rule)), from.digest};
  });
}

void flashmask_tile_map_destroy(flashmask_tile_map* map) {
  delete map;
}

}  // extern "C"
