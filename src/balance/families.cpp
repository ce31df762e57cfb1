#include "balance/families.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "balance/state.hpp"
#include "flashmask/builders.hpp"

namespace flashmask::balancing {
namespace {

double uniform(Random& random) {
  return (static_cast<double>(random.next() >> 11) + 0.5) * 0x1p-53;
}

/// Log-normal with the given mean: the logarithm has mean ln(mean) - sigma^2 / 2.
std::int64_t log_normal(Random& random, double mean, double sigma) {
  const double normal = std::sqrt(-2 * std::log(uniform(random))) * std::cos(2 * std::numbers::pi * uniform(random));
  const double length = std::exp(std::log(mean) - sigma * sigma / 2 + sigma * normal);
  return std::max<std::int64_t>(1, std::llround(std::min(length, 1e12)));
}

}  // namespace

std::vector<std::int64_t> uniform_loads(std::int64_t count, std::int64_t most, std::uint64_t seed) {
  Random random(mix(seed));
  std::vector<std::int64_t> loads(static_cast<std::size_t>(count));
  for (std::int64_t& w : loads) w = 1 + random.below(static_cast<std::uint64_t>(most));
  return loads;
}

std::vector<std::int64_t> causal_loads(std::int64_t count, std::int64_t most, std::uint64_t seed) {
  Random random(mix(seed));
  std::vector<std::int64_t> loads(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const std::int64_t line = most * static_cast<std::int64_t>(i + 1) / count;
    const std::int64_t jitter = std::max<std::int64_t>(1, most / 10);
    loads[i] = std::max<std::int64_t>(1, line - jitter + random.below(static_cast<std::uint64_t>(2 * jitter + 1)));
  }
  return loads;
}

std::string_view to_string(Family family) {
  constexpr std::array<std::string_view, 3> names{"causal_document_8k", "causal_document_32k", "prefix_lm_16k"};
  return names.at(static_cast<std::size_t>(family));
}

ColumnMask family_mask(Family family, std::int64_t columns, std::uint64_t seed) {
  Random random(mix(seed));
  const bool prefix = family == Family::prefix_lm_16k;
  const double mean = family == Family::causal_document_8k ? 8192 : prefix ? 16384 : 32768;
  const double sigma = family == Family::causal_document_32k ? 1.5 : 1.2;
  std::vector<masks::Document> documents;
  for (std::int64_t used = 0; used < columns;) {
    const std::int64_t length = std::min(columns - used, log_normal(random, mean, sigma));
    masks::Document document{.length = length};
    if (prefix) document.prefix = static_cast<std::int64_t>(uniform(random) * static_cast<double>(length + 1));
    documents.push_back(document);
    used += length;
  }
  const MaskShape shape{.rows = columns, .columns = columns};
  return prefix ? masks::prefix_lm_document(shape, documents) : masks::causal_document(shape, documents);
}

Workload family_workload(Family family, std::int64_t columns, std::int64_t ranks, std::int64_t nodes,
                         std::uint64_t seed) {
  const ColumnMask mask = family_mask(family, columns, seed);
  const WeightedMask masks[] = {{&mask, 1}};
  WorkloadOptions options{.chunk = 1024, .ranks = ranks, .nodes = nodes};
  options.costs.forward = {.partial = 13, .unmasked = 10};
  return make_workload(masks, options);
}

}  // namespace flashmask::balancing
