#include "mask/documents.hpp"

#include <algorithm>
#include <numeric>

#include "core/check.hpp"

namespace flashmask {
namespace mask {
namespace {

std::int64_t checked_sum(std::string_view builder, std::int64_t batch, std::size_t number,
                         const masks::Document& document) {
  std::int64_t sum = 0;
  for (const std::int64_t answer : document.answers) {
    core::check(answer >= 0 && answer <= document.length - sum,
                "{}: batch {}, document {}: an answer of {} tokens: expected answers that fill the {} tokens of the "
                "document behind its prefix",
                builder, batch, number, answer, document.length);
    sum += answer;
  }
  return sum;
}

PlacedDocument place(std::string_view builder, std::int64_t batch, std::size_t number, std::int64_t begin,
                     const masks::Document& document) {
  const std::int64_t n = document.length;
  const std::int64_t answered = checked_sum(builder, batch, number, document);
  const bool has_answers = !document.answers.empty();
  const std::int64_t prefix = document.prefix.value_or(has_answers ? n - answered : std::max<std::int64_t>(1, n / 4));
  core::check(prefix >= 0 && prefix <= n, "{}: batch {}, document {}: prefix = {}: expected 0 to its length {}",
              builder, batch, number, prefix, n);
  core::check(!has_answers || prefix + answered == n,
              "{}: batch {}, document {}: prefix {} + answers {} = {}: expected its length {}", builder, batch, number,
              prefix, answered, prefix + answered, n);
  PlacedDocument placed{begin, begin + n, begin + prefix, {}};
  std::int64_t end = begin + prefix;
  if (has_answers) {
    for (const std::int64_t answer : document.answers) placed.answer_ends.push_back(end += answer);
  } else {
    const std::int64_t third = (n - prefix) / 3;
    placed.answer_ends = {end + third, end + 2 * third, begin + n};
  }
  return placed;
}

}  // namespace

std::vector<PlacedDocument> place_documents(std::string_view builder, const masks::Packing& packing,
                                            const MaskShape& shape, std::int64_t batch) {
  const std::int64_t lists = std::ssize(packing.lists);
  core::check(lists == 1 || lists == shape.batch,
              "{}: {} document lists for batch = {}: expected one for all batch rows or one each", builder, lists,
              shape.batch);
  const auto& documents = packing.lists[static_cast<std::size_t>(lists == 1 ? 0 : batch)];
  std::vector<PlacedDocument> placed;
  placed.reserve(documents.size());
  std::int64_t begin = 0;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const std::int64_t n = documents[d].length;
    core::check(n >= 0, "{}: batch {}, document {}: length = {}: expected at least 0", builder, batch, d, n);
    core::check(n <= shape.columns - begin,
                "{}: batch {}: document {} of {} tokens starts at {} and ends beyond columns = {}: shorten it or raise "
                "columns",
                builder, batch, d, n, begin, shape.columns);
    if (n > 0) placed.push_back(place(builder, batch, d, begin, documents[d]));
    begin += n;
  }
  return placed;
}

}  // namespace mask

namespace masks {

std::vector<Document> documents_of(std::span<const std::int64_t> lengths) {
  std::vector<Document> documents;
  documents.reserve(lengths.size());
  for (const std::int64_t length : lengths) documents.push_back({.length = length});
  return documents;
}

std::vector<Document> equal_documents(std::int64_t columns, std::int64_t count) {
  core::check(columns >= 0, "equal_documents: columns = {}: expected at least 0", columns);
  core::check(count >= 1, "equal_documents: count = {}: expected at least 1", count);
  const std::int64_t k = std::min(count, std::max<std::int64_t>(1, columns));
  std::vector<Document> documents(static_cast<std::size_t>(k), Document{.length = columns / k});
  documents.back().length += columns % k;
  return documents;
}

}  // namespace masks
}  // namespace flashmask
