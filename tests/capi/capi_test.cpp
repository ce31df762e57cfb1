#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "capi/boundary.hpp"
#include "flashmask/flashmask.h"

namespace {

/// A struct that grew once: 16 bytes, then 24.
struct Grown {
  std::size_t struct_size;
  std::int64_t first, second;
};

}  // namespace

template <>
inline constexpr std::array<std::size_t, 2> flashmask::capi::published_sizes<Grown>{16, sizeof(Grown)};

namespace {

struct MaskHandle {
  flashmask_mask* get = nullptr;
  ~MaskHandle() { flashmask_mask_destroy(get); }
};

flashmask_mask_options options_for(std::int64_t rows) {
  flashmask_mask_options options{};
  options.struct_size = sizeof options;
  options.rows = rows;
  return options;
}

void expect_refusal(flashmask_status status, flashmask_status expected, const std::string& word) {
  EXPECT_EQ(status, expected) << flashmask_last_error();
  EXPECT_NE(std::string(flashmask_last_error()).find(word), std::string::npos)
      << "the text '" << flashmask_last_error() << "' does not name " << word;
}

TEST(CApi, a_builder_mask_exports_vectors_dense_and_counts_that_agree) {
  MaskHandle mask;
  auto options = options_for(64);
  ASSERT_EQ(flashmask_mask_build("causal_document", &options, &mask.get), FLASHMASK_OK) << flashmask_last_error();
  flashmask_mask_shape shape{};
  ASSERT_EQ(flashmask_mask_get_shape(mask.get, &shape), FLASHMASK_OK);
  EXPECT_EQ(shape.rows, 64);
  std::int64_t cells = 0;
  ASSERT_EQ(flashmask_mask_visible_cells(mask.get, &cells), FLASHMASK_OK);
  std::vector<std::uint8_t> dense(64 * 64, 7);
  ASSERT_EQ(flashmask_mask_export_dense(mask.get, 0, 0, dense.data()), FLASHMASK_OK);
  std::vector<std::int64_t> counts(64);
  ASSERT_EQ(flashmask_mask_row_counts(mask.get, 0, 0, counts.data()), FLASHMASK_OK);
  std::int64_t sum = 0;
  for (int row = 0; row < 64; ++row) {
    std::int64_t in_row = 0;
    for (int column = 0; column < 64; ++column) in_row += dense[static_cast<std::size_t>(row * 64 + column)];
    EXPECT_EQ(in_row, counts[static_cast<std::size_t>(row)]) << "row " << row;
    sum += in_row;
  }
  EXPECT_EQ(sum, cells);
  EXPECT_EQ(cells, 8 * 36);  // eight documents of 8 tokens

  std::vector<std::int32_t> lts(64), lte(64), uts(64), ute(64);
  ASSERT_EQ(flashmask_mask_export_vectors(mask.get, lts.data(), lte.data(), uts.data(), ute.data()), FLASHMASK_OK);
  MaskHandle again;
  ASSERT_EQ(flashmask_mask_create(shape, lts.data(), lte.data(), uts.data(), ute.data(), &again.get), FLASHMASK_OK);
  std::uint64_t a = 0;
  std::uint64_t b = 1;
  ASSERT_EQ(flashmask_mask_digest(mask.get, &a), FLASHMASK_OK);
  ASSERT_EQ(flashmask_mask_digest(again.get, &b), FLASHMASK_OK);
  EXPECT_EQ(a, b);
}

TEST(CApi, every_listed_builder_builds) {
  std::size_t count = 0;
  for (; flashmask_builder_name(count) != nullptr; ++count) {
    MaskHandle mask;
    auto options = options_for(256);
    EXPECT_EQ(flashmask_mask_build(flashmask_builder_name(count), &options, &mask.get), FLASHMASK_OK)
        << flashmask_builder_name(count) << ": " << flashmask_last_error();
  }
  EXPECT_GE(count, 12U);
}

std::int64_t visible_cells(const char* builder, const flashmask_mask_options& options) {
  MaskHandle mask;
  EXPECT_EQ(flashmask_mask_build(builder, &options, &mask.get), FLASHMASK_OK) << flashmask_last_error();
  std::int64_t cells = -1;
  EXPECT_EQ(flashmask_mask_visible_cells(mask.get, &cells), FLASHMASK_OK);
  return cells;
}

TEST(CApi, minus_one_says_none_where_zero_is_the_default) {
  auto options = options_for(64);
  options.global_tokens = -1;
  options.window = -1;  // a reach of 0 and no global tokens: every row sees itself alone
  EXPECT_EQ(visible_cells("global_sliding_window", options), 64);
  options.prefix = -1;  // no prefix: plainly causal
  EXPECT_EQ(visible_cells("prefix_lm_causal", options), 64 * 65 / 2);
  const flashmask_document documents[] = {{40, -1}, {24, 4}};
  options.documents = documents;
  options.document_count = 2;
  EXPECT_EQ(visible_cells("prefix_lm_document", options), 40 * 41 / 2 + 24 * 25 / 2 + 4 * 3 / 2);

  MaskHandle mask;
  expect_refusal(flashmask_mask_build("sliding_window", &options, &mask.get), FLASHMASK_INVALID_ARGUMENT, "at least 1");
  options.window = -2;
  expect_refusal(flashmask_mask_build("sliding_window", &options, &mask.get), FLASHMASK_INVALID_ARGUMENT,
                 "options.window is -2: expected a count, 0 (the builder's default) or -1 (none)");
  const flashmask_document bad{64, -7};
  options = options_for(64);
  options.documents = &bad;
  options.document_count = 1;
  expect_refusal(flashmask_mask_build("prefix_lm_document", &options, &mask.get), FLASHMASK_INVALID_ARGUMENT,
                 "options.documents[].prefix is -7");
}

TEST(CApi, a_map_of_another_mask_and_documents_without_a_count_are_refused) {
  MaskHandle one, other;
  auto options = options_for(16);
  ASSERT_EQ(flashmask_mask_build("causal", &options, &one.get), FLASHMASK_OK);
  ASSERT_EQ(flashmask_mask_build("full", &options, &other.get), FLASHMASK_OK);
  flashmask_tile_map* map = nullptr;
  ASSERT_EQ(flashmask_tile_map_create(one.get, 64, 64, FLASHMASK_RULE_EXACT, &map), FLASHMASK_OK);
  std::vector<float> q(16 * 4, 0.5F), out(16 * 4), lse(16);
  flashmask_forward_arguments call{};
  call.struct_size = sizeof call;
  call.shape = {1, 16, 16, 1, 1, 4};
  call.map = map;
  call.dtype = FLASHMASK_F32;
  for (flashmask_tensor* t : {&call.q, &call.k, &call.v}) *t = {q.data(), {64, 4, 4, 1}};
  call.out = {out.data(), {64, 4, 4, 1}};
  call.lse = lse.data();
  call.mask = one.get;
  EXPECT_EQ(flashmask_forward(&call), FLASHMASK_OK) << flashmask_last_error();
  for (flashmask_tensor* t : {&call.q, &call.k, &call.v, &call.out}) {  // strides left as zero-initialised
    const flashmask_tensor set = *t;
    *t = {set.data, {0, 0, 0, 0}};
    expect_refusal(flashmask_forward(&call), FLASHMASK_INVALID_ARGUMENT, ".strides = [0, 0, 0, 0]");
    *t = set;
  }
  call.mask = other.get;
  expect_refusal(flashmask_forward(&call), FLASHMASK_INVALID_ARGUMENT, "map was built for another mask");
  flashmask_tile_map_destroy(map);

  const flashmask_document document{16, 0};
  options.documents = &document;
  expect_refusal(flashmask_mask_build("causal_document", &options, &one.get), FLASHMASK_INVALID_ARGUMENT,
                 "options.document_count is 0");
}

TEST(CApi, tile_statistics_count_every_tile) {
  MaskHandle mask;
  auto options = options_for(300);
  ASSERT_EQ(flashmask_mask_build("causal", &options, &mask.get), FLASHMASK_OK);
  flashmask_tile_statistics s{};
  ASSERT_EQ(flashmask_mask_tile_statistics(mask.get, 128, 128, FLASHMASK_RULE_MINMAX, &s), FLASHMASK_OK);
  EXPECT_EQ(s.masked, 3);
  EXPECT_EQ(s.partial, 3);
  EXPECT_EQ(s.unmasked, 3);
  EXPECT_DOUBLE_EQ(s.tile_density, 6.0 / 9.0);
  EXPECT_DOUBLE_EQ(s.element_density, 301.0 / 600.0);
}

TEST(CApi, bad_input_is_refused_by_name_and_writes_no_handle) {
  flashmask_mask* mask = nullptr;
  auto options = options_for(64);
  expect_refusal(flashmask_mask_build("causel", &options, &mask), FLASHMASK_INVALID_ARGUMENT, "causel");
  expect_refusal(flashmask_mask_build(nullptr, &options, &mask), FLASHMASK_INVALID_ARGUMENT, "name");
  expect_refusal(flashmask_mask_build("causal", nullptr, &mask), FLASHMASK_INVALID_ARGUMENT, "options");
  expect_refusal(flashmask_mask_build("causal", &options, nullptr), FLASHMASK_INVALID_ARGUMENT, "mask");
  options.struct_size = 3;
  expect_refusal(flashmask_mask_build("causal", &options, &mask), FLASHMASK_INVALID_ARGUMENT, "struct_size");
  options = options_for(-5);
  expect_refusal(flashmask_mask_build("causal", &options, &mask), FLASHMASK_INVALID_ARGUMENT, "rows");
  options = options_for(64);
  options.document_count = 2;
  expect_refusal(flashmask_mask_build("document", &options, &mask), FLASHMASK_INVALID_ARGUMENT, "documents");
  expect_refusal(flashmask_mask_create({1, 1, 4, 4}, nullptr, nullptr, nullptr, nullptr, &mask),
                 FLASHMASK_INVALID_ARGUMENT, "lts");
  expect_refusal(flashmask_mask_create({1, -1, 4, 4}, nullptr, nullptr, nullptr, nullptr, &mask),
                 FLASHMASK_INVALID_ARGUMENT, "heads");
  expect_refusal(flashmask_mask_visible_cells(nullptr, nullptr), FLASHMASK_INVALID_ARGUMENT, "NULL");
  expect_refusal(flashmask_forward(nullptr), FLASHMASK_INVALID_ARGUMENT, "arguments");
  flashmask_backward_arguments backward{};
  backward.struct_size = sizeof backward;
  expect_refusal(flashmask_backward(&backward), FLASHMASK_INVALID_ARGUMENT, "mask");
  EXPECT_EQ(mask, nullptr);
}

TEST(CApi, a_struct_of_a_size_that_was_never_published_is_refused) {
  flashmask_mask* mask = nullptr;
  for (const std::size_t size : {std::size_t{8}, offsetof(flashmask_mask_options, documents),
                                 sizeof(flashmask_mask_options) - 4, sizeof(flashmask_mask_options) + 8}) {
    flashmask_mask_options options = options_for(64);
    options.struct_size = size;
    expect_refusal(flashmask_mask_build("causal", &options, &mask), FLASHMASK_INVALID_ARGUMENT,
                   "this library knows " + std::to_string(sizeof options) + " bytes");
  }
  flashmask_forward_arguments forward{};
  forward.struct_size = offsetof(flashmask_forward_arguments, scale);
  expect_refusal(flashmask_forward(&forward), FLASHMASK_INVALID_ARGUMENT, "arguments.struct_size");
  flashmask_backward_arguments backward{};
  backward.struct_size = sizeof backward - 2;
  expect_refusal(flashmask_backward(&backward), FLASHMASK_INVALID_ARGUMENT, "arguments.struct_size");
  EXPECT_EQ(mask, nullptr);
}

TEST(CApi, a_struct_of_an_earlier_size_is_read_up_to_it) {
  const Grown old{.struct_size = 16, .first = 7, .second = 9};  // the second lies beyond the stated size
  const Grown copy = flashmask::capi::sized_copy(&old, "grown");
  EXPECT_EQ(copy.first, 7);
  EXPECT_EQ(copy.second, 0);
  const Grown now{.struct_size = sizeof(Grown), .first = 7, .second = 9};
  EXPECT_EQ(flashmask::capi::sized_copy(&now, "grown").second, 9);
  const Grown between{.struct_size = 20, .first = 7, .second = 9};
  EXPECT_THROW(flashmask::capi::sized_copy(&between, "grown"), flashmask::Error);
}

TEST(CApi, a_mask_shape_is_checked_before_the_arrays_are_read) {
  const std::int32_t values[4] = {};
  flashmask_mask* mask = nullptr;
  const auto create = [&](const flashmask_mask_shape& shape) {
    return flashmask_mask_create(shape, values, values, values, values, &mask);
  };
  constexpr std::int64_t large = 2147483647;
  expect_refusal(create({1, 1, 4, large + 1}), FLASHMASK_INVALID_ARGUMENT, "shape.columns is 2147483648");
  expect_refusal(create({1, 1, 4, -5}), FLASHMASK_INVALID_ARGUMENT, "shape.columns is -5");
  expect_refusal(create({1, -1, 4, 4}), FLASHMASK_INVALID_ARGUMENT, "shape.heads is -1");
  expect_refusal(create({large, large, 4, large}), FLASHMASK_INVALID_ARGUMENT, "shape.batch x heads x columns");
  expect_refusal(flashmask_mask_from_startend_row_indices({1, 1, 4, large + 1}, values, 1, 1, &mask),
                 FLASHMASK_INVALID_ARGUMENT, "shape.columns is 2147483648");
  EXPECT_EQ(mask, nullptr);
}

TEST(CApi, the_last_error_belongs_to_its_thread) {
  flashmask_mask* mask = nullptr;
  auto options = options_for(64);
  ASSERT_NE(flashmask_mask_build("nonsense_one", &options, &mask), FLASHMASK_OK);
  std::thread([&] {
    EXPECT_STREQ(flashmask_last_error(), "");
    ASSERT_NE(flashmask_mask_build("nonsense_two", &options, &mask), FLASHMASK_OK);
  }).join();
  EXPECT_NE(std::string(flashmask_last_error()).find("nonsense_one"), std::string::npos);
}

TEST(CApi, status_names_are_stable) {
  EXPECT_STREQ(flashmask_status_name(FLASHMASK_OK), "ok");
  EXPECT_STREQ(flashmask_status_name(FLASHMASK_TIMEOUT), "timeout");
  EXPECT_STREQ(flashmask_status_name(99), "unknown");
}

#if defined(FLASHMASK_HAS_CUDA)
TEST(CApiSm90, tiles_and_workspaces_are_told_without_a_device) {
  std::int32_t block_m = 0, block_n = 0;
  ASSERT_EQ(flashmask_sm90_forward_tile(nullptr, 128, &block_m, &block_n), FLASHMASK_OK) << flashmask_last_error();
  EXPECT_EQ(block_m, 192);
  EXPECT_EQ(block_n, 80);
  MaskHandle mask;
  const auto options = options_for(8192);
  ASSERT_EQ(flashmask_mask_build("causal_document", &options, &mask.get), FLASHMASK_OK);
  ASSERT_EQ(flashmask_sm90_choose_forward_tile(mask.get, {1, 8192, 8192, 64, 8, 128}, &block_m, &block_n), FLASHMASK_OK)
      << flashmask_last_error();
  EXPECT_EQ(block_m, 24);  // eight query heads a KV head share its row tiles
  EXPECT_EQ(block_n, 80);
  expect_refusal(flashmask_sm90_choose_forward_tile(nullptr, {1, 8192, 8192, 64, 8, 128}, &block_m, &block_n),
                 FLASHMASK_INVALID_ARGUMENT, "mask");
  ASSERT_EQ(flashmask_sm90_choose_backward_tile(mask.get, {1, 8192, 8192, 16, 16, 64}, 0, &block_m, &block_n),
            FLASHMASK_OK);
  EXPECT_EQ(block_m, 64);
  EXPECT_EQ(block_n, 128);
  MaskHandle full;
  ASSERT_EQ(flashmask_mask_build("full", &options, &full.get), FLASHMASK_OK);
  flashmask_sm90_choose_backward_tile(full.get, {1, 8192, 8192, 16, 16, 64}, 0, &block_m, &block_n);
  EXPECT_EQ(block_n, 256);
  expect_refusal(flashmask_sm90_choose_backward_tile(nullptr, {1, 8192, 8192, 16, 16, 64}, 0, &block_m, &block_n),
                 FLASHMASK_INVALID_ARGUMENT, "mask");
  std::size_t bytes = 0;
  ASSERT_EQ(flashmask_sm90_forward_workspace_bytes(&bytes), FLASHMASK_OK);
  EXPECT_GT(bytes, 0U);
  expect_refusal(flashmask_sm90_forward_tile(nullptr, 129, &block_m, &block_n), FLASHMASK_INVALID_ARGUMENT, "head_dim");
  flashmask_sm90_forward_arguments arguments{};
  expect_refusal(flashmask_sm90_forward(&arguments), FLASHMASK_INVALID_ARGUMENT, "struct_size");
  arguments.struct_size = sizeof arguments;
  expect_refusal(flashmask_sm90_forward(&arguments), FLASHMASK_INVALID_ARGUMENT, "mask");
}

TEST(CApiSm90, out_parameters_stay_where_the_call_fails) {
  std::int32_t one = -1;
  expect_refusal(flashmask_sm90_forward_tile(nullptr, 128, &one, nullptr), FLASHMASK_INVALID_ARGUMENT, "block_n");
  expect_refusal(flashmask_sm90_backward_tile(&one, nullptr), FLASHMASK_INVALID_ARGUMENT, "block_n");
  MaskHandle mask;
  const auto options = options_for(64);
  ASSERT_EQ(flashmask_mask_build("causal", &options, &mask.get), FLASHMASK_OK);
  expect_refusal(flashmask_sm90_choose_forward_tile(mask.get, {1, 64, 64, 8, 1, 128}, &one, nullptr),
                 FLASHMASK_INVALID_ARGUMENT, "block_n");
  expect_refusal(flashmask_sm90_choose_backward_tile(mask.get, {1, 64, 64, 8, 1, 128}, 0, &one, nullptr),
                 FLASHMASK_INVALID_ARGUMENT, "block_n");
  EXPECT_EQ(one, -1);
}

TEST(CApiSm90, shapes_whose_products_leave_int64_are_refused) {
  constexpr std::int64_t huge = std::int64_t{1} << 61;
  std::int32_t block_m = -1, block_n = -1;
  MaskHandle mask;
  const auto options = options_for(1024);
  ASSERT_EQ(flashmask_mask_build("causal", &options, &mask.get), FLASHMASK_OK);
  expect_refusal(flashmask_sm90_choose_forward_tile(mask.get, {1, 1024, 1024, huge, huge, 128}, &block_m, &block_n),
                 FLASHMASK_INVALID_ARGUMENT, "query_heads");
  std::size_t bytes = 0;
  const auto size = [&](const flashmask_attention_shape& shape, const flashmask_mask_shape& of) {
    return flashmask_sm90_backward_workspace_bytes(shape, of, 0, &bytes);
  };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const flashmask_attention_shape call{2, 1024, 512, 8, 2, 128};
  expect_refusal(size(call, {-5, 1, 1024, 512}), FLASHMASK_INVALID_ARGUMENT, "mask batch must be 1 or 2, got -5");
  expect_refusal(size(call, {huge * 2, 4, 1024, 512}), FLASHMASK_INVALID_ARGUMENT, "mask batch");
  expect_refusal(size(call, {2, 0, 1024, 512}), FLASHMASK_INVALID_ARGUMENT, "mask heads");
  expect_refusal(size(call, {2, 3, 1024, 512}), FLASHMASK_INVALID_ARGUMENT, "mask heads");
  expect_refusal(size(call, {2, 1, 1025, 512}), FLASHMASK_INVALID_ARGUMENT, "1025 rows");
  expect_refusal(size(call, {2, 1, 1024, 513}), FLASHMASK_INVALID_ARGUMENT, "513 columns");
  expect_refusal(size({std::int64_t{1} << 60, 1024, 512, 8, 2, 128}, {1, 1, 1024, 512}), FLASHMASK_INVALID_ARGUMENT,
                 "batch");
  expect_refusal(size({1, most, 512, 8, 2, 128}, {1, 1, most, 512}), FLASHMASK_INVALID_ARGUMENT, "rows");
  expect_refusal(size({1, 1024, most, 8, 2, 128}, {1, 1, 1024, most}), FLASHMASK_INVALID_ARGUMENT, "columns");
  EXPECT_EQ(bytes, 0U);
  ASSERT_EQ(size(call, {2, 8, 1024, 512}), FLASHMASK_OK) << flashmask_last_error();
  EXPECT_GT(bytes, std::size_t{2} * 1024 * 8 * 128 * 4);  // float32 dQ alone
}

TEST(CApiSm90, bad_arguments_are_named_with_or_without_a_gpu) {
  expect_refusal(flashmask_sm90_prepare_workspace(nullptr, nullptr), FLASHMASK_INVALID_ARGUMENT, "workspace is null");
  expect_refusal(flashmask_sm90_check_workspace(nullptr, nullptr), FLASHMASK_INVALID_ARGUMENT, "workspace is null");
  expect_refusal(flashmask_sm90_check_workspace(reinterpret_cast<void*>(8), nullptr), FLASHMASK_INVALID_ARGUMENT,
                 "aligned to 16");
  expect_refusal(flashmask_sm90_check_backward_workspace(nullptr, nullptr), FLASHMASK_INVALID_ARGUMENT, "workspace");
  expect_refusal(flashmask_sm90_check_backward_workspace(reinterpret_cast<void*>(16), nullptr),
                 FLASHMASK_INVALID_ARGUMENT, "aligned to 256");
  flashmask_device_mask* mask = nullptr;
  expect_refusal(flashmask_device_mask_create({1, 1, 64, 64}, 128, 128, &mask), FLASHMASK_INVALID_ARGUMENT,
                 "no kernel takes a map of 128x128 tiles");
  expect_refusal(flashmask_device_mask_create({1 << 30, 1 << 30, 3072, 1280}, 192, 80, &mask),
                 FLASHMASK_INVALID_ARGUMENT, "split the batch");
  const auto create_for = [&](const flashmask_mask_shape& shape, std::int32_t block_m, std::int32_t block_n) {
    return flashmask_device_mask_create_for(shape, block_m, block_n, {2, 64, 32, 8, 2, 128}, &mask);
  };
  expect_refusal(create_for({1, 1, 65, 32}, 192, 80), FLASHMASK_INVALID_ARGUMENT, "65 rows");
  expect_refusal(create_for({1, 3, 64, 32}, 192, 80), FLASHMASK_INVALID_ARGUMENT, "mask heads");
  expect_refusal(create_for({3, 1, 64, 32}, 192, 80), FLASHMASK_INVALID_ARGUMENT, "mask batch");
  expect_refusal(create_for({1, 1, 64, 32}, 24, 80), FLASHMASK_INVALID_ARGUMENT,
                 "no kernel of these calls takes a map of 24x80 tiles");
  expect_refusal(create_for({1, 1, 64, 32}, 192, 128), FLASHMASK_INVALID_ARGUMENT, "192x80, 192x64");
  EXPECT_EQ(mask, nullptr);
}

TEST(CApiSm90, without_a_hopper_gpu_every_entry_that_touches_the_device_says_so) {
  alignas(256) static std::byte memory[256];
  if (flashmask_sm90_prepare_workspace(memory, nullptr) != FLASHMASK_UNSUPPORTED) GTEST_SKIP() << "a Hopper GPU";
  flashmask_device_mask* mask = nullptr;
  for (const flashmask_status status :
       {flashmask_sm90_prepare_workspace(memory, nullptr), flashmask_sm90_check_workspace(memory, nullptr),
        flashmask_sm90_check_backward_workspace(memory, nullptr),
        flashmask_device_mask_create({1, 1, 64, 64}, 192, 80, &mask),
        flashmask_device_mask_create_for({1, 1, 64, 64}, 64, 128, {1, 64, 64, 1, 1, 128}, &mask)}) {
    expect_refusal(status, FLASHMASK_UNSUPPORTED, "need a Hopper GPU");
  }
}
#else
TEST(CApiSm90, a_build_without_cuda_refuses_by_name) {
  std::int32_t block_m = -1, block_n = -1;
  expect_refusal(flashmask_sm90_forward_tile(nullptr, 128, &block_m, &block_n), FLASHMASK_UNSUPPORTED, "without CUDA");
  expect_refusal(flashmask_sm90_choose_forward_tile(nullptr, {1, 8, 8, 8, 1, 128}, &block_m, &block_n),
                 FLASHMASK_UNSUPPORTED, "without CUDA");
  expect_refusal(flashmask_sm90_choose_backward_tile(nullptr, {1, 8, 8, 8, 1, 128}, 0, &block_m, &block_n),
                 FLASHMASK_UNSUPPORTED, "without CUDA");
  EXPECT_EQ(block_m, -1);
  flashmask_device_mask* mask = nullptr;
  expect_refusal(flashmask_device_mask_create({1, 1, 8, 8}, 192, 80, &mask), FLASHMASK_UNSUPPORTED, "--preset cuda");
  expect_refusal(flashmask_device_mask_create_for({1, 1, 8, 8}, 192, 80, {1, 8, 8, 8, 1, 128}, &mask),
                 FLASHMASK_UNSUPPORTED, "--preset cuda");
  EXPECT_EQ(mask, nullptr);
  flashmask_device_mask_destroy(nullptr);
  flashmask_sm90_forward_arguments forward{};
  expect_refusal(flashmask_sm90_forward(&forward), FLASHMASK_UNSUPPORTED, "without CUDA");
  flashmask_sm90_backward_arguments backward{};
  expect_refusal(flashmask_sm90_backward(&backward), FLASHMASK_UNSUPPORTED, "without CUDA");
  expect_refusal(flashmask_sm90_check_backward_workspace(nullptr, nullptr), FLASHMASK_UNSUPPORTED, "without CUDA");
}
#endif

}  // namespace
