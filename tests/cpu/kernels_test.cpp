// The kernels of every instruction set this machine runs, against plain loops.
#include "cpu/kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "cpu/buffer.hpp"
#include "flashmask/builders.hpp"
#include "flashmask/error.hpp"
#include "support/attention_call.hpp"

namespace flashmask::cpu {
namespace {

using std::int64_t;
using testing::Random;

/// Selects an instruction set for the life of the object.
class WithIsa {
 public:
  explicit WithIsa(const std::string& name) { ::setenv("FLASHMASK_CPU_ISA", name.c_str(), 1); }
  ~WithIsa() { ::unsetenv("FLASHMASK_CPU_ISA"); }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;
};

std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (const char* name : {"baseline", "avx2", "avx512"}) {
    const WithIsa isa(name);
    try {
      kernels();
      names.emplace_back(name);
    } catch (const Error&) {
      // not on this machine
    }
  }
  return names;
}

template <typename F>
void for_each_isa(const F& f) {
  for (const std::string& name : isas()) {
    SCOPED_TRACE(name);
    const WithIsa isa(name);
    ASSERT_EQ(kernels().name, name);
    f(kernels());
  }
}

TEST(Kernels, one_value_that_is_not_finite_is_found_wherever_it_lies) {
  for_each_isa([](const Kernels& k) {
    for (const int64_t columns : {1, 7, 64, 65, 127, 256}) {
      const int64_t rows = 3, stride = columns + 5;
      std::vector<float> data(static_cast<std::size_t>(rows * stride), std::nanf(""));  // between the rows too
      for (int64_t at = 0; at < rows * columns; ++at)
        data[static_cast<std::size_t>(at / columns * stride + at % columns)] = 3e38F;
      EXPECT_TRUE(k.all_finite(data.data(), rows, columns, stride));
      for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
        for (int64_t at = 0; at < rows * columns; ++at) {
          float& x = data[static_cast<std::size_t>(at / columns * stride + at % columns)];
          x = bad;
          EXPECT_FALSE(k.all_finite(data.data(), rows, columns, stride)) << columns << " columns, element " << at;
          x = -1;
        }
      }
    }
  });
}

TEST(Kernels, an_unknown_instruction_set_is_refused_by_name) {
  const WithIsa isa("avx1024");
  try {
    kernels();
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("FLASHMASK_CPU_ISA=avx1024"), std::string::npos) << e.what();
  }
}

TEST(Kernels, the_product_is_right_for_every_block_size) {
  for_each_isa([](const Kernels& k) {
    Random random(3);
    for (int64_t m = 1; m <= 20; ++m) {
      for (int64_t lanes = k.lanes; lanes <= kStrip; lanes += k.lanes) {
        const int64_t depth = random.integer(1, 40);
        Buffer a(m * depth);
        Buffer b(depth * kStrip);
        Buffer c(m * kStrip);
        for (int64_t i = 0; i < m * depth; ++i) a[i] = random.normal();
        for (int64_t i = 0; i < depth * kStrip; ++i) b[i] = random.normal();
        for (const bool by_k : {true, false}) {
          for (int64_t i = 0; i < m * kStrip; ++i) c[i] = 100;
          const Factor factor{a.data(), by_k ? depth : 1, by_k ? 1 : m};
          k.multiply(m, lanes, depth, factor, b.data(), c.data(), false);
          k.multiply(m, lanes, depth, factor, b.data(), c.data(), true);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t n = 0; n < kStrip; ++n) {
              double sum = 0;
              for (int64_t p = 0; p < depth; ++p)
                sum += 2.0 * a[i * factor.m_stride + p * factor.k_stride] * b[p * kStrip + n];
              if (n < lanes) {
                ASSERT_NEAR(c[i * kStrip + n], sum, 1e-4) << i << ',' << n << " of " << m << 'x' << lanes;
              } else {
                ASSERT_EQ(c[i * kStrip + n], 100) << "lane " << n << " lies beyond " << lanes;
              }
            }
          }
        }
      }
    }
  });
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr float kStep = 0.0771F;
constexpr bool kSanitized = true;
#else
constexpr float kStep = 0.00371F;
constexpr bool kSanitized = false;
#endif

/// P of a score x when another column of the row scores 0: exp2(x).
float exp2_by_softmax(const Kernels& k, float x) {
  Buffer scores(2 * kStrip);
  Buffer maximum(kStrip);
  Buffer sum(kStrip);
  Buffer out(kStrip);
  for (int64_t lane = 0; lane < k.lanes; ++lane) {
    maximum[lane] = -std::numeric_limits<float>::infinity();
    scores[kStrip + lane] = x;
  }
  k.softmax({k.lanes, 2, 0, nullptr, 1.0F}, scores.data(), {maximum.data(), sum.data()}, out.data(), 1);
  return scores[kStrip];
}

TEST(Kernels, exp2_is_within_one_and_a_half_units_in_the_last_place) {
  for_each_isa([](const Kernels& k) {
    double worst = 0;
    for (float x = 0; x > -125.9F; x -= kStep) {
      const double truth = std::exp2(static_cast<double>(x));
      worst = std::max(worst, std::abs(exp2_by_softmax(k, x) - truth) / ulp(truth, DType::f32));
    }
    EXPECT_LE(worst, 1.5);
    EXPECT_GT(worst, 0.3) << "too good to be float32";
    EXPECT_EQ(exp2_by_softmax(k, -1.0F), 0.5F);
    EXPECT_EQ(exp2_by_softmax(k, -126.5F), 0.0F);
    EXPECT_EQ(exp2_by_softmax(k, -1e30F), 0.0F);
    EXPECT_EQ(exp2_by_softmax(k, -std::numeric_limits<float>::infinity()), 0.0F);
    EXPECT_TRUE(std::isnan(exp2_by_softmax(k, std::nanf(""))));
    const auto poison = __builtin_bit_cast(float, 0xffffffffU);
    EXPECT_TRUE(std::isnan(exp2_by_softmax(k, poison)));
  });
}

TEST(Kernels, conversions_agree_with_the_scalar_ones_and_leave_the_rest_alone) {
  for_each_isa([](const Kernels& k) {
    Random random(5);
    const int64_t rows = 13;
    const int64_t columns = 21;
    std::vector<std::uint16_t> source(static_cast<std::size_t>(rows * 40));
    for (auto& x : source) x = core::float_to_bf16(random.normal());
    const Strided view{source.data(), DType::bf16, 40, 1};
    Buffer straight(rows * columns);
    k.widen(view, rows, columns, straight.data(), columns);
    Buffer transposed(columns * kStrip);
    for (int64_t i = 0; i < columns * kStrip; ++i) transposed[i] = 7;
    k.widen_transposed(view, rows, columns, transposed.data(), 16);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const float x = core::bf16_to_float(source[static_cast<std::size_t>(r * 40 + c)]);
        ASSERT_EQ(straight[r * columns + c], x);
        ASSERT_EQ(transposed[c * kStrip + r], x);
      }
    }
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = rows; r < kStrip; ++r) ASSERT_EQ(transposed[c * kStrip + r], r < 16 ? 0 : 7);
    }
    Buffer factor(kStrip);
    for (int64_t r = 0; r < rows; ++r) factor[r] = r == 4 ? 0.0F : 0.5F;
    transposed[4] = std::nanf("");
    std::vector<std::uint16_t> result(source.size(), 0x1234);
    k.narrow_transposed(transposed.data(), factor.data(), rows, columns, {result.data(), DType::bf16, 40, 1});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < 40; ++c) {
        const auto at = static_cast<std::size_t>(r * 40 + c);
        const float half = r == 4 ? 0 : 0.5F * core::bf16_to_float(source[at]);
        ASSERT_EQ(result[at], c < columns ? core::float_to_bf16(half) : 0x1234) << r << ',' << c;
      }
    }
  });
}

TEST(Kernels, every_instruction_set_gives_right_attention) {
  const AttentionShape shape{.rows = 93, .columns = 141, .query_heads = 4, .kv_heads = 2, .head_dim = 40};
  for_each_isa([&](const Kernels&) {
    for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
      if (kSanitized && dtype != DType::bf16) break;
      testing::Call call(shape, masks::causal({1, 1, 93, 141}), dtype);
      call.run();
      testing::expect_matches_oracle(call);
      testing::expect_count_probe(call);
    }
  });
}

}  // namespace
}  // namespace flashmask::cpu
