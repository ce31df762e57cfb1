// Builders of masks, by function and by name (docs/mask.md).
//
// Every result is canonical. Where rows != columns the rows are the last `rows` of `columns` tokens: row i is token
// i + (columns - rows), as in chunked prefill, so causal is aligned to the bottom right. full, causal, sliding_window
// and window also take more rows than columns; the others refuse that, because such rows belong to no token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "flashmask/mask.hpp"

namespace flashmask::masks {

/// One packed document. `prefix` is the bidirectional prefix of prefix_lm_document and the question of share_question;
/// absent: length - sum(answers) if answers are given, else max(1, length / 4). `answers` (share_question only) must
/// fill the document behind the prefix; empty: three answers of (length - prefix) / 3 tokens, the last takes the rest.
struct Document {
  std::int64_t length = 0;
  std::optional<std::int64_t> prefix{};
  std::vector<std::int64_t> answers{};
};

/// Documents of every batch row: one list for all rows, or one list a batch row. Empty documents vanish; what a list
/// leaves of the columns is padding: dead columns and dead rows.
struct Packing {
  std::vector<std::vector<Document>> lists;

  Packing() = default;
  Packing(std::vector<Document> one_for_all) : lists{std::move(one_for_all)} {}         // NOLINT: a list is a packing
  Packing(std::vector<std::vector<Document>> one_each) : lists(std::move(one_each)) {}  // NOLINT
};

/// Documents of the given lengths, with default prefixes and answers.
std::vector<Document> documents_of(std::span<const std::int64_t> lengths);
/// `count` documents of columns / count tokens, the last takes the remainder; fewer if there are fewer columns.
std::vector<Document> equal_documents(std::int64_t columns, std::int64_t count);

/// How far a window reaches to one side of a row's own token: a number of further keys, or without bound.
class WindowSide {
 public:
  static constexpr WindowSide unbounded() { return WindowSide(std::nullopt); }
  /// The own token and `count` >= 0 keys beyond it.
  static constexpr WindowSide keys(std::int64_t count) { return WindowSide(count); }

  [[nodiscard]] constexpr bool is_unbounded() const { return !count_.has_value(); }
  /// Number of keys; only for a bounded side.
  [[nodiscard]] constexpr std::int64_t count() const { return count_.value(); }
  friend constexpr bool operator==(const WindowSide&, const WindowSide&) = default;

 private:
  constexpr explicit WindowSide(std::optional<std::int64_t> count) : count_(count) {}
  std::optional<std::int64_t> count_;
};

/// Columns [column_begin, column_end) hidden from token rows [row_begin, row_end), row_begin >= column_end.
struct SparseBlock {
  std::int64_t column_begin = 0, column_end = 0;
  std::int64_t row_begin = 0, row_end = 0;
};

/// Tokens [begin, begin + length).
struct Segment {
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

/// Node of a tree of shared prefixes, in depth-first order; `parent` is an earlier index, absent for a root.
struct TreeNode {
  std::optional<std::int64_t> parent{};
  std::int64_t length = 0;
};

// ---- The twelve benchmark masks. All throw invalid_argument naming the argument and what is allowed. ----

/// Every row sees every column.
ColumnMask full(const MaskShape& shape);
/// Row i sees column j iff j <= i + (columns - rows).
ColumnMask causal(const MaskShape& shape);
/// Causal, the last `keys` >= 1 keys, the own one included.
ColumnMask sliding_window(const MaskShape& shape, std::int64_t keys);
/// Causal inside each document.
ColumnMask causal_document(const MaskShape& shape, const Packing& packing);
/// Bidirectional inside each document.
ColumnMask document(const MaskShape& shape, const Packing& packing);
/// Causal; every answer sees its question and itself.
ColumnMask share_question(const MaskShape& shape, const Packing& packing);
/// `global` leading tokens see and are seen by all; the others see `reach` >= 0 keys to both sides.
ColumnMask global_sliding_window(const MaskShape& shape, std::int64_t global, std::int64_t reach);
/// Causal inside each document; the last document sees all before it too. Documents must fill the columns.
ColumnMask causal_blockwise(const MaskShape& shape, const Packing& packing);
/// Causal inside each document, bidirectional inside its prefix.
ColumnMask prefix_lm_document(const MaskShape& shape, const Packing& packing);
/// Causal, bidirectional inside the first `prefix` tokens.
ColumnMask prefix_lm_causal(const MaskShape& shape, std::int64_t prefix);
/// Causal less rectangular blocks of disjoint column ranges.
ColumnMask qk_sparse_blocks(const MaskShape& shape, std::span<const SparseBlock> blocks);
/// Causal; column j is evicted from a row uniform in (j, columns] on, drawn per batch row, mask head and column.
ColumnMask random_eviction(const MaskShape& shape, std::uint64_t seed);

// ---- More builders ----

/// Causal less disjoint segments whose rows do not see the segment.
ColumnMask qk_sparse(const MaskShape& shape, std::span<const Segment> segments);
/// Row i sees keys from its own token - left to its own token + right.
ColumnMask window(const MaskShape& shape, WindowSide left, WindowSide right);
/// Causal inside chunks of `chunk` >= 1 tokens.
ColumnMask chunked(const MaskShape& shape, std::int64_t chunk);
/// Every row sees its own frame of `frame` >= 1 tokens whole and `past` earlier frames.
ColumnMask video_block_causal(const MaskShape& shape, std::int64_t frame, WindowSide past = WindowSide::unbounded());
/// Each token sees its own node up to itself and all its ancestors: one causal vector. One list of nodes for all batch
/// rows or one a batch row; lengths must sum to at most the columns, the rest is padding.
ColumnMask prefix_tree(const MaskShape& shape, std::span<const std::vector<TreeNode>> trees);
/// Position of every token of a prefix tree along its own path from the root.
std::vector<std::int64_t> prefix_tree_positions(std::span<const TreeNode> nodes);

/// A mask over rows and columns sorted by bucket: row i is query row_order[i], column j is key column_order[j].
struct HashSparse {
  ColumnMask mask;
  std::vector<std::int64_t> row_order, column_order;
};
/// Query i sees key j iff they share a bucket and j <= i + (keys - queries). Any bucket numbers.
HashSparse hash_sparse(std::span<const std::int64_t> query_buckets, std::span<const std::int64_t> key_buckets);

// ---- Composition ----

/// The mask heads of all parts, in order (e.g. window heads beside full heads); parts agree in all other extents.
ColumnMask per_head(std::span<const ColumnMask> parts);
/// The batch rows of all parts, in order; parts agree in all other extents.
ColumnMask stack_batch(std::span<const ColumnMask> parts);

// ---- The outer form of FlashMask users ----

/// `values` is int32 [batch][heads][columns][vectors]. causal 1: LTS; causal 2: LTS, LTE; not causal 2: LTS, UTE;
/// not causal 4: LTS, LTE, UTS, UTE. Any values; clamped to [0, rows]. Causal is aligned to the bottom right. Any
/// other pair is refused with the list of accepted forms.
ColumnMask from_startend_row_indices(const MaskShape& shape, bool causal, std::int64_t vectors,
                                     std::span<const std::int32_t> values);

// ---- By name ----

/// What build() may need; absent values take the stated default, values a builder does not use are ignored.
struct BuilderOptions {
  std::int64_t rows = 0;
  std::optional<std::int64_t> columns{};  ///< default: rows
  std::int64_t batch = 1;
  std::int64_t mask_heads = 1;
  Packing documents{};                   ///< default: eight equal documents
  std::optional<std::int64_t> window{};  ///< sliding_window: keys >= 1, default columns / 8; global_sliding_window:
                                         ///< reach >= 0 to each side, default columns / 16; defaults are at least 1
  std::int64_t global = 16;              ///< global_sliding_window: leading tokens that see and are seen by all
  std::optional<std::int64_t> prefix{};  ///< prefix_lm_causal: default columns / 4
  std::uint64_t seed = 0;                ///< random_eviction, hash_sparse
  WindowSide left = WindowSide::unbounded();   ///< window
  WindowSide right = WindowSide::keys(0);      ///< window
  std::vector<SparseBlock> blocks{};           ///< qk_sparse_blocks; default: the two blocks of docs/mask.md
  std::vector<Segment> segments{};             ///< qk_sparse; default: [N/8, N/4) and [N/2, 5N/8)
  std::optional<std::int64_t> chunk{};         ///< chunked: default columns / 8
  std::optional<std::int64_t> frame{};         ///< video_block_causal: default columns / 16
  WindowSide past = WindowSide::unbounded();   ///< video_block_causal: earlier frames seen
  std::vector<std::vector<TreeNode>> trees{};  ///< prefix_tree; default: a root, two branches, two leaves each
  std::int64_t buckets = 8;                    ///< hash_sparse: buckets drawn from `seed` for every query and key
};

struct BuilderName {
  std::string_view name;
  std::string_view description;
  std::span<const std::string_view> options{};  ///< members of BuilderOptions that it reads, beyond those of the shape
};

/// Every name build() knows, the twelve benchmark masks first, with one line about each and the options it reads.
std::span<const BuilderName> builder_names();

/// The mask of that name. An unknown name is refused with the list of known ones.
ColumnMask build(std::string_view name, const BuilderOptions& options);

/// The shape build() gives its result.
MaskShape shape_of(const BuilderOptions& options);
/// The options with every default that `name` needs filled in.
BuilderOptions with_defaults(std::string_view name, const BuilderOptions& options);

/// Visible cells of build(name, options) over batch and mask heads by the formula of docs/mask.md, never by counting
/// vectors. Nothing where there is none: random_eviction, hash_sparse, and where rows != columns all but full, causal,
/// sliding_window and window. The options must be legal for build(); what would stop the formula is refused.
std::optional<std::int64_t> closed_form_visible_cells(std::string_view name, const BuilderOptions& options);

}  // namespace flashmask::masks
