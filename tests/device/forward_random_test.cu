// The forward kernel on random masks and shapes, the count probe on every mask, and repetition until a race would show.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <span>

#include "device/forward_harness.cuh"
#include "support/mask_families.hpp"

namespace flashmask::device {
namespace {

using flashmask::testing::MaskKind;
using flashmask::testing::pick;
using flashmask::testing::Random;
using flashmask::testing::random_attention_shape;
using flashmask::testing::random_family_mask;
using flashmask::testing::RawMask;

const int draws = count_from_environment("FLASHMASK_DEVICE_DRAWS", 2000);
const int repeats = count_from_environment("FLASHMASK_DEVICE_REPEATS", 1000);

std::string describe(int n, const AttentionShape& s, std::int64_t mask_heads) {
  return "draw " + std::to_string(n) + ": batch " + std::to_string(s.batch) + " rows " + std::to_string(s.rows) +
         " columns " + std::to_string(s.columns) + " heads " + std::to_string(s.query_heads) + ":" +
         std::to_string(s.kv_heads) + " mask heads " + std::to_string(mask_heads) + " head_dim " +
         std::to_string(s.head_dim);
}

template <typename T>
bool draw_and_check(Random& random, int n, const ForwardWorkspace& workspace, WorstErrors& errors) {
  // Mostly small, so that 2,000 draws take seconds; every twentieth is long enough for many blocks a row tile.
  const std::int64_t most = n % 20 == 0 ? 1500 : 330;
  auto e = random_attention_shape(random, most, most);
  if (n % 4 == 1) {  // heads that a packed map can take
    e.query_heads = e.kv_heads * pick(random, {8, 8, 16});
    e.mask_heads = pick(random, {std::int64_t{1}, e.kv_heads});
  }
  const AttentionShape shape{e.batch, e.rows, e.columns, e.query_heads, e.kv_heads, e.head_dim};
  const RawMask mask = random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns});
  ForwardSetup setup;
  setup.layout = pick(random, {Layout::bshd, Layout::bhsd, Layout::padded});
  setup.spread = pick(random, {0.3F, 1.0F, 1.0F, 3.0F});
  setup.grid = pick(random, {0, 0, 1, 5});
  if (random.one_in(5)) setup.scale = 0.2F;
  const std::span<const TileShape> tiles = sm90::forward_tiles(shape, e.mask_heads);
  setup.tile = random.one_in(2) ? tiles.back() : tiles[static_cast<std::size_t>(random.integer(0, tiles.size() - 1))];
  setup.bitmaps = !random.one_in(4);
  ForwardCase<T> c(shape, mask.view(), n, setup);
  c.run(workspace);
  workspace.check();
  return c.expect_right(errors, describe(n, shape, e.mask_heads));
}

TEST(ForwardRandom, agrees_with_float64_on_2000_random_masks_and_shapes) {
  const ForwardWorkspace workspace;
  WorstErrors errors;
  int wrong = 0;
  for (int n = 0; n < draws && wrong < 5; ++n) {
    Random random(n);
    wrong += (n % 3 == 0 ? draw_and_check<__half>(random, n, workspace, errors)
                         : draw_and_check<__nv_bfloat16>(random, n, workspace, errors))
                 ? 0
                 : 1;
  }
}

/// With q = 0 every visible column counts one: lse = ln(count), so a single wrong cell of 8192 shows.
void probe(const AttentionShape& shape, const ColumnMask& mask, const ForwardWorkspace& workspace,
           const std::string& name, std::optional<TileShape> tile = {}) {
  ForwardCase<__nv_bfloat16> c(shape, mask.view(), 7, {.spread = 0, .tile = tile});
  c.run(workspace);
  workspace.check();
  const std::vector<double> lse = c.lse_values();
  const std::int64_t per_mask_head = shape.query_heads / mask.shape().heads;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.query_heads; ++h) {
      const std::vector<std::int64_t> counts = mask.row_counts(b, h / per_mask_head);
      for (std::int64_t i = 0; i < shape.rows; ++i) {
        const double got = lse[(b * shape.query_heads + h) * shape.rows + i];
        const double want = counts[i] == 0 ? -INFINITY : std::log(static_cast<double>(counts[i]));
        ASSERT_TRUE(got == want || std::abs(got - want) < 8e-6)
            << name << " batch " << b << " head " << h << " row " << i << ": lse " << got << " says " << std::exp(got)
            << " visible columns, not " << counts[i];
      }
    }
  }
}

TEST(ForwardRandom, counts_every_visible_cell_of_every_named_mask) {
  const ForwardWorkspace workspace;
  for (const masks::BuilderName& builder : masks::builder_names()) {
    for (const std::int64_t rows : {8192, 4001}) {
      masks::BuilderOptions options;
      options.rows = rows;
      const ColumnMask mask = masks::build(builder.name, options);
      ASSERT_NO_FATAL_FAILURE(
          probe({1, rows, mask.shape().columns, 1, 1, 128}, mask, workspace, std::string(builder.name)));
      ASSERT_NO_FATAL_FAILURE(probe({1, rows, mask.shape().columns, 8, 1, 128}, mask, workspace,
                                    std::string(builder.name) + " packed", packed_tile(128)));
    }
  }
}

TEST(ForwardRandom, counts_every_visible_cell_of_random_masks_of_every_family) {
  const ForwardWorkspace workspace;
  for (int kind = 0; kind < static_cast<int>(MaskKind::count); ++kind) {
    for (int n = 0; n < 6; ++n) {
      Random random(9000 + 10 * kind + n);
      const MaskShape shape{2, 2, flashmask::testing::random_length(random, 3000),
                            flashmask::testing::random_length(random, 3000)};
      const RawMask raw = random_family_mask(random, shape, static_cast<MaskKind>(kind));
      const ColumnMask mask(shape, raw.lts, raw.lte, raw.uts, raw.ute);
      const std::int64_t head_dim = n % 2 == 0 ? 64 : 128;
      const std::string what = "kind " + std::to_string(kind) + " draw " + std::to_string(n);
      ASSERT_NO_FATAL_FAILURE(probe({2, shape.rows, shape.columns, 4, 2, head_dim}, mask, workspace, what));
      if (n >= 2) continue;
      ASSERT_NO_FATAL_FAILURE(probe({2, shape.rows, shape.columns, 16, 2, head_dim}, mask, workspace, what + " packed",
                                    packed_tile(head_dim)));
    }
  }
}

TEST(ForwardRandom, a_thousand_repetitions_are_bitwise_equal) {
  const ForwardWorkspace workspace;
  struct Stress {
    MaskKind kind;
    AttentionShape shape{2, 1111, 1234, 4, 2, 128};
    std::optional<TileShape> tile{};
  };
  const AttentionShape packable{1, 711, 834, 16, 2, 128};
  for (const auto& [kind, shape, tile] :
       {Stress{MaskKind::causal_documents}, Stress{MaskKind::eviction}, Stress{MaskKind::any_values},
        Stress{MaskKind::causal_documents, packable, packed_tile(128)}}) {
    Random random(31 + static_cast<int>(kind));
    const RawMask mask = random_family_mask(random, {shape.batch, 2, shape.rows, shape.columns}, kind);
    ForwardCase<__nv_bfloat16> c(shape, mask.view(), 5, {.tile = tile});
    c.run(workspace);
    WorstErrors errors;
    ASSERT_TRUE(c.expect_right(errors, "first run"));
    const auto bytes = [&] {
      const std::vector<__nv_bfloat16> out = c.out.buffer().download();
      const std::vector<float> lse = c.lse.download();
      std::string all(reinterpret_cast<const char*>(out.data()), out.size() * sizeof(out[0]));
      return all.append(reinterpret_cast<const char*>(lse.data()), lse.size() * sizeof(float));
    };
    const std::string first = bytes();
    for (int n = 0; n < repeats; ++n) {
      if (n % 10 == 0) c.poison();
      c.run(workspace);
      if (n % 10 == 9) ASSERT_EQ(first == bytes(), true) << "repetition " << n << " of kind " << static_cast<int>(kind);
    }
    workspace.check();
  }
}

}  // namespace
}  // namespace flashmask::device
