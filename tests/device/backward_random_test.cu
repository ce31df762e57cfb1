// The backward kernels on random masks and shapes, the transposed count probe on every mask, and repetition.
#include <gtest/gtest.h>

#include <cmath>

#include "device/backward_harness.cuh"
#include "flashmask/builders.hpp"
#include "support/mask_families.hpp"

namespace flashmask::device {
namespace {

using flashmask::testing::AttentionExtents;
using flashmask::testing::MaskKind;
using flashmask::testing::pick;
using flashmask::testing::Random;
using flashmask::testing::random_attention_shape;
using flashmask::testing::random_family_mask;
using flashmask::testing::RawMask;

/// Tiles that a pair of CTAs works on.
constexpr TileShape pair_tile{64, 256};

const int draws = count_from_environment("FLASHMASK_DEVICE_DRAWS", 2000);
const int repeats = count_from_environment("FLASHMASK_DEVICE_REPEATS", 1000);

template <typename T>
bool draw_and_check(Random& random, int n, const ForwardWorkspace& workspace, WorstErrors& errors) {
  const std::int64_t most = n % 20 == 0 ? 1200 : 300;
  const AttentionExtents e = random_attention_shape(random, most, most);
  const RawMask mask = random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns});
  BackwardCase<T> c(shape_of(e), mask.view(), n, random.one_in(3),
                    pick(random, {Layout::bshd, Layout::bhsd, Layout::padded}), pick(random, {0.3F, 1.0F, 1.0F, 2.0F}));
  if (random.one_in(5)) c.forward.setup.scale = 0.2F;
  c.run(workspace);
  return c.expect_right(errors,
                        "draw " + std::to_string(n) + ": " + describe(e) + (c.deterministic ? " deterministic" : ""));
}

TEST(BackwardRandom, agrees_with_float64_on_2000_random_masks_and_shapes) {
  const ForwardWorkspace workspace;
  WorstErrors errors;
  int wrong = 0;
  for (int n = 0; n < draws && wrong < 5; ++n) {
    Random random(700000 + n);
    wrong += (n % 3 == 0 ? draw_and_check<__half>(random, n, workspace, errors)
                         : draw_and_check<__nv_bfloat16>(random, n, workspace, errors))
                 ? 0
                 : 1;
  }
}

/// With q = 0 and lse = 0 every visible cell has P = 1; with dO of row i one-hot at i mod head_dim, dV[j][d] is the
/// number of rows i = d (mod head_dim) that see column j: small integers, exact in bf16, so one wrong cell anywhere
/// shows.
void probe(const AttentionShape& shape, const ColumnMask& mask, bool deterministic, TileShape tile,
           const std::string& name) {
  using T = __nv_bfloat16;
  BackwardCase<T> c(shape, mask.view(), 7, deterministic, Layout::bshd, 0, tile);
  std::vector<T> one_hot(static_cast<std::size_t>(c.dout.buffer().size()), T(0.0F));
  for (std::int64_t x = 0; x < shape.batch * shape.rows * shape.query_heads; ++x) {
    one_hot[x * shape.head_dim + x / shape.query_heads % shape.rows % shape.head_dim] = T(1.0F);
  }
  c.dout.buffer().upload(one_hot);
  c.forward.out.buffer().upload(std::vector<T>(one_hot.size(), T(0.0F)));
  c.forward.lse.upload(std::vector<float>(static_cast<std::size_t>(c.forward.lse.size()), 0.0F));
  run_call(c, call_of(c));
  const std::vector<double> dv = c.dv.download();
  const std::int64_t group = shape.query_heads / shape.kv_heads, per_mask_head = shape.query_heads / mask.shape().heads;
  std::vector<std::int64_t> want(static_cast<std::size_t>(shape.head_dim));
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      for (std::int64_t j = 0; j < shape.columns; ++j) {
        std::fill(want.begin(), want.end(), 0);
        for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
          const HiddenRows hidden = mask.at(b, h / per_mask_head, j);
          for (std::int64_t i = 0; i < shape.rows; ++i) {
            want[i % shape.head_dim] += hidden.hides(static_cast<std::int32_t>(i)) ? 0 : 1;
          }
        }
        for (std::int64_t d = 0; d < shape.head_dim; ++d) {
          ASSERT_EQ(dv[((b * shape.columns + j) * shape.kv_heads + kv) * shape.head_dim + d], want[d])
              << name << " batch " << b << " KV head " << kv << " column " << j << " rows " << d << " mod "
              << shape.head_dim;
        }
      }
    }
  }
}

TEST(BackwardRandom, counts_every_visible_cell_of_every_named_mask) {
  for (const masks::BuilderName& builder : masks::builder_names()) {
    for (const std::int64_t rows : {4096, 2001}) {
      masks::BuilderOptions options;
      options.rows = rows;
      const ColumnMask mask = masks::build(builder.name, options);
      AttentionShape shape{1, rows, mask.shape().columns, 1, 1, 128};
      ASSERT_NO_FATAL_FAILURE(probe(shape, mask, rows == 2001, sm90::backward_tile(), std::string(builder.name)));
      for (const std::int64_t head_dim : {64, 128}) {
        shape.head_dim = head_dim;
        ASSERT_NO_FATAL_FAILURE(probe(shape, mask, false, pair_tile, std::string(builder.name) + " in pairs"));
      }
    }
  }
}

TEST(BackwardRandom, counts_every_visible_cell_of_random_masks_of_every_family) {
  for (int kind = 0; kind < static_cast<int>(MaskKind::count); ++kind) {
    for (int n = 0; n < 4; ++n) {
      Random random(9000 + 10 * kind + n);
      const MaskShape shape{2, n % 2 == 0 ? 2 : 4, flashmask::testing::random_length(random, 1500),
                            flashmask::testing::random_length(random, 1500)};
      const RawMask raw = random_family_mask(random, shape, static_cast<MaskKind>(kind));
      const ColumnMask mask(shape, raw.lts, raw.lte, raw.uts, raw.ute);
      const std::string name = "kind " + std::to_string(kind) + " draw " + std::to_string(n);
      const AttentionShape s{2, shape.rows, shape.columns, 4, 2, n < 2 ? 64 : 128};
      ASSERT_NO_FATAL_FAILURE(probe(s, mask, n == 3, sm90::backward_tile(), name));
      ASSERT_NO_FATAL_FAILURE(probe(s, mask, false, pair_tile, name + " in pairs"));
    }
  }
}

TEST(BackwardRandom, A30_deterministic_gradients_are_bitwise_equal_over_20_runs) {
  const ForwardWorkspace workspace;
  for (const std::int64_t kv_heads : {4, 2, 1}) {
    for (const std::int64_t mask_heads : {std::int64_t{1}, kv_heads, std::int64_t{4}}) {
      for (const std::int64_t head_dim : {64, 80, 128}) {
        Random random(40 + kv_heads + mask_heads);
        const AttentionShape shape{2, 700, 650, 4, kv_heads, head_dim};
        RawMask mask = random_family_mask(random, {2, mask_heads, 700, 650}, MaskKind::causal_documents);
        if (mask_heads > 1) {  // one head whose every tile is empty
          for (std::int64_t j = 0; j < 650; ++j) mask.set(650 + j, {0, 700, 0, 0});
        }
        BackwardCase<__nv_bfloat16> c(shape, mask.view(), 3, true);
        c.run(workspace);
        WorstErrors errors;
        ASSERT_TRUE(c.expect_right(errors, "first run"));
        const std::string dq = bytes_of(c.dq), dk = bytes_of(c.dk), dv = bytes_of(c.dv);
        for (int n = 0; n < std::min(20, repeats); ++n) {
          c.poison();
          c.run_backward();
          ASSERT_TRUE(dq == bytes_of(c.dq) && dk == bytes_of(c.dk) && dv == bytes_of(c.dv)) << "run " << n;
        }
        sm90::check_backward_workspace(c.workspace.data(), nullptr);
      }
    }
  }
}

TEST(BackwardRandom, a_thousand_repetitions_stay_right_and_dk_and_dv_bitwise_equal) {
  const ForwardWorkspace workspace;
  for (const MaskKind kind : {MaskKind::causal_documents, MaskKind::eviction, MaskKind::any_values}) {
    Random random(31 + static_cast<int>(kind));
    const AttentionShape shape{2, 777, 834, 4, 2, 128};
    const RawMask mask = random_family_mask(random, {2, 2, shape.rows, shape.columns}, kind);
    BackwardCase<__nv_bfloat16> c(shape, mask.view(), 5, false);
    c.run(workspace);
    WorstErrors errors;
    ASSERT_TRUE(c.expect_right(errors, "first run"));
    const std::string dk = bytes_of(c.dk), dv = bytes_of(c.dv);
    const std::vector<double> dq = c.dq.download();
    for (int n = 0; n < repeats; ++n) {
      if (n % 20 == 0) c.poison();
      c.run_backward();
      if (n % 20 != 19) continue;
      ASSERT_TRUE(dk == bytes_of(c.dk) && dv == bytes_of(c.dv)) << "repetition " << n;
      // dQ is summed in the order of arrival: float32 sums of other orders, rounded to bf16.
      const std::vector<double> again = c.dq.download();
      for (std::size_t i = 0; i < dq.size(); ++i) {
        ASSERT_NEAR(again[i], dq[i], 1e-5 + std::abs(dq[i]) / 64) << "repetition " << n << " element " << i;
      }
    }
    sm90::check_backward_workspace(c.workspace.data(), nullptr);
  }
}

}  // namespace
}  // namespace flashmask::device
