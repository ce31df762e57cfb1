// The numbered cases of one mask matrix whose right answers are known by count, for forward and backward alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "flashmask/builders.hpp"
#include "flashmask/mask.hpp"

namespace flashmask::device {

using Counts = std::vector<std::int64_t>;
using Column = std::function<HiddenRows(std::int32_t)>;

inline constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min(),
                              most = std::numeric_limits<std::int32_t>::max();

/// One matrix whose column j hides what `column` says.
inline ColumnMask mask_of(std::int32_t rows, std::int32_t columns, const Column& column) {
  ColumnMask mask({1, 1, rows, columns});
  for (std::int32_t j = 0; j < columns; ++j) mask.set(0, 0, j, column(j));
  return mask;
}

inline ColumnMask causal_with(std::int32_t n, const std::function<std::int32_t(std::int32_t)>& lts) {
  return mask_of(n, n, [&](std::int32_t j) { return HiddenRows{lts(j), n, 0, j}; });
}

/// The ends of consecutive documents, by column.
inline std::vector<std::int32_t> ends(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> end;
  for (const std::int32_t length : lengths) {
    const auto last = static_cast<std::int32_t>(end.size()) + length;
    end.insert(end.end(), static_cast<std::size_t>(length), last);
  }
  return end;
}

inline Counts all(std::int64_t rows, std::int64_t count) {
  return Counts(static_cast<std::size_t>(rows), count);
}
inline Counts one_to(std::int64_t rows) {
  Counts counts;
  for (std::int64_t i = 1; i <= rows; ++i) counts.push_back(i);
  return counts;
}

/// A mask and how many columns each of its rows sees.
struct NumberedCase {
  std::string name;
  ColumnMask mask;
  Counts counts;
};

inline std::vector<NumberedCase> numbered_cases() {
  std::vector<NumberedCase> cases;
  std::string name;
  int number = 0;  // of the matrices of one name
  const auto golden = [&](ColumnMask mask, Counts counts) {
    const bool first = cases.empty() || !cases.back().name.starts_with(name);
    number = first ? 1 : number + 1;
    cases.push_back({name + (first ? "" : ", matrix " + std::to_string(number)), std::move(mask), std::move(counts)});
  };
  {
    name = "A1_one_document_of_7_and_a_pad";
    golden(mask_of(8, 8, [](std::int32_t j) { return HiddenRows{7, 8, 0, j < 7 ? 0 : 8}; }), {7, 7, 7, 7, 7, 7, 7, 0});
  }
  {
    name = "A2_documents_4_and_3_and_pads";
    const auto end = ends({4, 3});
    golden(mask_of(10, 10,
                   [&](std::int32_t j) {
                     return j < 7 ? HiddenRows{end[j], 10, 0, j < 4 ? 0 : 4} : HiddenRows{0, 10, 0, 0};
                   }),
           {4, 4, 4, 4, 3, 3, 3, 0, 0, 0});
  }
  {
    name = "A3_padding_between_documents";
    const std::vector<std::int32_t> ids{1, 1, 1, 0, 2, 2, 0, 0}, end{3, 3, 3, 0, 6, 6, 0, 0};
    golden(causal_with(8, [&](std::int32_t j) { return ids[j] == 0 ? 0 : end[j]; }), {1, 2, 3, 0, 1, 2, 0, 0});
  }
  {
    name = "A4_everything_hidden";
    golden(causal_with(128, [](std::int32_t) { return 0; }), all(128, 0));
  }
  {
    name = "A5_nothing_hidden_then_everything";
    golden(mask_of(300, 300, [](std::int32_t) { return HiddenRows{300, 300, 0, 0}; }), all(300, 300));
    golden(mask_of(300, 300, [](std::int32_t) { return HiddenRows{300, 300, 0, 300}; }), all(300, 0));
  }
  {
    name = "A6_documents_with_a_ragged_dead_tail";
    const auto end = ends({92, 63, 117, 28});
    Counts counts;
    for (const std::int64_t n : {92, 63, 117}) {
      const Counts part = one_to(n);
      counts.insert(counts.end(), part.begin(), part.end());
    }
    counts.resize(300, 0);
    golden(causal_with(300, [&](std::int32_t j) { return std::min(end[j], 272); }), counts);
  }
  {
    name = "A9_one_row_sees_all";
    golden(mask_of(1, 127, [](std::int32_t) { return HiddenRows{1, 1, 0, 0}; }), {127});
  }
  {
    name = "A10_more_rows_than_columns";
    Counts counts;
    for (std::int64_t i = 0; i < 128; ++i) counts.push_back(i);
    golden(mask_of(128, 127, [](std::int32_t j) { return HiddenRows{128, 128, 0, j + 1}; }), counts);
  }
  {
    name = "A11_five_rows_three_columns";
    golden(mask_of(5, 3, [](std::int32_t j) { return HiddenRows{5, 5, 0, j + 2}; }), {0, 0, 1, 2, 3});
  }
  {
    name = "A12_few_rows_of_very_many_columns";
    Counts counts;
    for (std::int64_t i = 0; i < 128; ++i) counts.push_back(33665 + i);
    golden(mask_of(128, 33792, [](std::int32_t j) { return HiddenRows{128, 128, 0, std::max(0, j - 33664)}; }), counts);
  }
  {
    name = "A15_an_empty_run_inside_a_tile";
    golden(mask_of(256, 256, [](std::int32_t) { return HiddenRows{200, 200, 0, 0}; }), all(256, 256));
  }
  {
    name = "A16_an_inverted_run_is_empty";
    golden(mask_of(512, 512, [](std::int32_t) { return HiddenRows{300, 100, 0, 0}; }), all(512, 512));
  }
  {
    name = "A17_overlapping_and_touching_runs";
    Counts counts = all(512, 512);
    std::fill(counts.begin() + 100, counts.begin() + 400, 0);
    golden(mask_of(512, 512, [](std::int32_t) { return HiddenRows{100, 300, 200, 400}; }), counts);
    golden(mask_of(512, 512, [](std::int32_t) { return HiddenRows{100, 250, 250, 400}; }), counts);
  }
  {
    name = "A18_bounds_outside_the_rows";
    golden(causal_with(64, [](std::int32_t) { return 65; }), one_to(64));
    golden(mask_of(64, 64, [](std::int32_t) { return HiddenRows{64, 64, 0, -3}; }), all(64, 64));
    golden(mask_of(64, 64, [](std::int32_t j) { return HiddenRows{most, most, least, j}; }), one_to(64));
    golden(mask_of(64, 64, [](std::int32_t) { return HiddenRows{64, most, least, least}; }), all(64, 64));
  }
  {
    name = "A19_start_at_before_and_beyond_the_diagonal";
    golden(causal_with(256, [](std::int32_t j) { return j + 1; }), all(256, 1));
    golden(causal_with(256, [](std::int32_t j) { return j; }), all(256, 0));
    golden(causal_with(256, [](std::int32_t j) { return std::min(j + 300, 256); }), one_to(256));
  }
  {
    name = "A20_global_and_window";
    golden(masks::global_sliding_window({1, 1, 64, 64}, 16, 100), all(64, 64));
    golden(masks::global_sliding_window({1, 1, 64, 64}, 64, 0), all(64, 64));
    golden(masks::global_sliding_window({1, 1, 64, 64}, 0, 0), all(64, 1));
  }
  {
    name = "A24_columns_around_powers_of_two";
    for (const std::int32_t columns : {16383, 16384, 16385, 16512, 16513, 32769}) {
      const ColumnMask mask = mask_of(64, columns, [&](std::int32_t j) {
        return HiddenRows{64, 64, 0, std::max(0, j - columns + 64)};
      });
      Counts counts;
      for (std::int64_t i = 0; i < 64; ++i) counts.push_back(columns - 63 + i);
      golden(mask, counts);
    }
  }
  {
    name = "A25_windows_without_bound";
    using masks::WindowSide;
    const MaskShape shape{1, 1, 200, 200};
    golden(masks::window(shape, WindowSide::unbounded(), WindowSide::unbounded()), all(200, 200));
    golden(masks::window(shape, WindowSide::unbounded(), WindowSide::keys(0)), one_to(200));
    golden(masks::window(shape, WindowSide::keys(0), WindowSide::keys(0)), all(200, 1));
  }
  {
    name = "A27_prefix_tree";
    const std::vector<std::int32_t> lts{10, 10, 6, 5, 5, 6, 10, 8, 10, 10};
    golden(causal_with(10, [&](std::int32_t j) { return lts[j]; }), {1, 2, 3, 4, 5, 4, 3, 4, 4, 5});
  }
  {
    name = "A28_share_question";
    const std::vector<std::int32_t> lts{7, 7, 4, 4, 7, 7, 7, 10, 9, 10};
    golden(causal_with(10, [&](std::int32_t j) { return lts[j]; }), {1, 2, 3, 4, 3, 4, 5, 1, 2, 2});
  }
  {
    name = "A29_prefix_lm_documents";
    const std::vector<std::int32_t> ute{0, 0, 2, 3, 4, 5, 6, 7};
    golden(mask_of(8, 8,
                   [&](std::int32_t j) {
                     return HiddenRows{j < 5 ? 5 : 8, 8, 0, ute[j]};
                   }),
           {2, 2, 3, 4, 5, 1, 2, 3});
  }
  return cases;
}

}  // namespace flashmask::device
