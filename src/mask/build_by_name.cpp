// build(): a name and one struct of options, for the command line, the C ABI and Python.
#include <algorithm>
#include <array>
#include <string>

#include "core/check.hpp"
#include "flashmask/builders.hpp"
#include "mask/random.hpp"

namespace flashmask::masks {
namespace {

// Members of BuilderOptions that builders read.
constexpr std::string_view kWindow[] = {"window"}, kGlobalWindow[] = {"window", "global"}, kDocuments[] = {"documents"},
                           kPrefix[] = {"prefix"}, kBlocks[] = {"blocks"}, kSegments[] = {"segments"},
                           kSeed[] = {"seed"}, kSides[] = {"left", "right"}, kChunk[] = {"chunk"},
                           kFrames[] = {"frame", "past"}, kTrees[] = {"trees"}, kBuckets[] = {"buckets", "seed"};

struct Builder {
  BuilderName name;
  ColumnMask (*build)(const MaskShape&, const BuilderOptions&);
};

ColumnMask hash_sparse_by_seed(const MaskShape& shape, const BuilderOptions& o) {
  core::check(o.buckets >= 1, "hash_sparse: buckets = {}: expected at least 1", o.buckets);
  std::vector<ColumnMask> batch_rows;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    std::vector<ColumnMask> heads;
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const auto draw = [&](std::int64_t count, std::int64_t first) {
        std::vector<std::int64_t> buckets(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) {
          buckets[static_cast<std::size_t>(i)] = mask::draw_below(o.buckets, {o.seed, b, h, first + i});
        }
        return buckets;
      };
      heads.push_back(hash_sparse(draw(shape.rows, 0), draw(shape.columns, shape.rows)).mask);
    }
    if (!heads.empty()) batch_rows.push_back(per_head(heads));
  }
  return batch_rows.empty() ? ColumnMask(shape) : stack_batch(batch_rows);
}

// The twelve benchmark masks first, in the order of their table.
constexpr std::array builders{
    Builder{{"full", "every row sees every column"}, [](const MaskShape& s, const BuilderOptions&) { return full(s); }},
    Builder{{"causal", "row i sees columns up to i + (columns - rows)"},
            [](const MaskShape& s, const BuilderOptions&) { return causal(s); }},
    Builder{{"sliding_window", "causal, the last `window` keys (default columns / 8)", kWindow},
            [](const MaskShape& s, const BuilderOptions& o) { return sliding_window(s, *o.window); }},
    Builder{{"causal_document", "causal inside each of the `documents`", kDocuments},
            [](const MaskShape& s, const BuilderOptions& o) { return causal_document(s, o.documents); }},
    Builder{{"document", "bidirectional inside each of the `documents`", kDocuments},
            [](const MaskShape& s, const BuilderOptions& o) { return document(s, o.documents); }},
    Builder{{"share_question", "causal; every answer of a document sees its question and itself", kDocuments},
            [](const MaskShape& s, const BuilderOptions& o) { return share_question(s, o.documents); }},
    Builder{{"global_sliding_window",
             "`global` tokens (16) see and are seen by all, the others `window` keys to each side (columns / 16)",
             kGlobalWindow},
            [](const MaskShape& s, const BuilderOptions& o) { return global_sliding_window(s, o.global, *o.window); }},
    Builder{{"causal_blockwise", "causal inside each document, the last document sees all before it", kDocuments},
            [](const MaskShape& s, const BuilderOptions& o) { return causal_blockwise(s, o.documents); }},
    Builder{
        {"prefix_lm_document", "causal inside each document, bidirectional inside its prefix (a quarter)", kDocuments},
        [](const MaskShape& s, const BuilderOptions& o) { return prefix_lm_document(s, o.documents); }},
    Builder{{"prefix_lm_causal", "causal, bidirectional inside the first `prefix` tokens (columns / 4)", kPrefix},
            [](const MaskShape& s, const BuilderOptions& o) { return prefix_lm_causal(s, *o.prefix); }},
    Builder{{"qk_sparse_blocks", "causal less rectangular `blocks`", kBlocks},
            [](const MaskShape& s, const BuilderOptions& o) { return qk_sparse_blocks(s, o.blocks); }},
    Builder{{"random_eviction", "causal, every column evicted from a row drawn from `seed` on", kSeed},
            [](const MaskShape& s, const BuilderOptions& o) { return random_eviction(s, o.seed); }},
    Builder{{"qk_sparse", "causal less `segments` whose rows do not see the segment", kSegments},
            [](const MaskShape& s, const BuilderOptions& o) { return qk_sparse(s, o.segments); }},
    Builder{{"window", "keys from `left` before a row's token (unbounded) to `right` behind it (0)", kSides},
            [](const MaskShape& s, const BuilderOptions& o) { return window(s, o.left, o.right); }},
    Builder{{"chunked", "causal inside chunks of `chunk` tokens (columns / 8)", kChunk},
            [](const MaskShape& s, const BuilderOptions& o) { return chunked(s, *o.chunk); }},
    Builder{{"video_block_causal", "a frame of `frame` tokens (columns / 16) sees itself and `past` frames (unbounded)",
             kFrames},
            [](const MaskShape& s, const BuilderOptions& o) { return video_block_causal(s, *o.frame, o.past); }},
    Builder{{"prefix_tree", "each token sees its own node of the tree up to itself and all its ancestors (`trees`)",
             kTrees},
            [](const MaskShape& s, const BuilderOptions& o) { return prefix_tree(s, o.trees); }},
    Builder{
        {"hash_sparse", "causal inside `buckets` (8) drawn from `seed`, rows and columns sorted by bucket", kBuckets},
        hash_sparse_by_seed},
};

constexpr auto names = [] {
  std::array<BuilderName, builders.size()> list{};
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = builders[i].name;
  return list;
}();

/// A root of a quarter of the tokens, two branches of an eighth, two leaves each; the last leaf takes the remainder.
std::vector<TreeNode> default_tree(std::int64_t n) {
  const std::int64_t root = n / 4, branch = n / 8, leaf = (n - root - 2 * branch) / 4;
  return {{{}, root}, {0, branch}, {1, leaf}, {1, leaf}, {0, branch}, {4, leaf}, {4, n - root - 2 * branch - 3 * leaf}};
}

}  // namespace

std::span<const BuilderName> builder_names() {
  return names;
}

MaskShape shape_of(const BuilderOptions& options) {
  return {options.batch, options.mask_heads, options.rows, options.columns.value_or(options.rows)};
}

BuilderOptions with_defaults(std::string_view name, const BuilderOptions& options) {
  BuilderOptions o = options;
  const std::int64_t n = shape_of(options).columns;
  const auto share = [n](std::int64_t parts) { return std::max<std::int64_t>(1, n / parts); };
  o.columns = n;
  if (o.documents.lists.empty()) o.documents = equal_documents(std::max<std::int64_t>(0, n), 8);
  if (!o.window) o.window = share(name == "global_sliding_window" ? 16 : 8);
  if (!o.prefix) o.prefix = n / 4;
  if (!o.chunk) o.chunk = share(8);
  if (!o.frame) o.frame = share(16);
  if (o.blocks.empty()) o.blocks = {{n / 8, n / 4, n / 2, n}, {n / 2, 5 * n / 8, 3 * n / 4, n}};
  if (o.segments.empty()) o.segments = {{n / 8, n / 4 - n / 8}, {n / 2, 5 * n / 8 - n / 2}};
  if (o.trees.empty()) o.trees = {default_tree(n)};
  return o;
}

ColumnMask build(std::string_view name, const BuilderOptions& options) {
  const auto builder = std::ranges::find(builders, name, [](const Builder& b) { return b.name.name; });
  if (builder == builders.end()) {
    std::string known;
    for (const BuilderName& n : names) known += (known.empty() ? "" : ", ") + std::string(n.name);
    core::fail(ErrorCode::invalid_argument, "mask builder \"{}\" is not known: expected one of {}", name, known);
  }
  return builder->build(shape_of(options), with_defaults(name, options));
}

}  // namespace flashmask::masks
