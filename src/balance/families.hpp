// Seeded families of instances that the published tables and the benchmarks speak about.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

/// `count` loads, uniform in [1, most].
std::vector<std::int64_t> uniform_loads(std::int64_t count, std::int64_t most, std::uint64_t seed);

/// Loads of `count` chunks of one full causal mask, linear in the chunk number, scaled so that the last is `most`, each
/// with a uniform jitter of a tenth: what a ragged document boundary does to a causal row axis.
std::vector<std::int64_t> causal_loads(std::int64_t count, std::int64_t most, std::uint64_t seed);

/// The three mask families of the production targets.
enum class Family : std::uint8_t { causal_document_8k, causal_document_32k, prefix_lm_16k };
std::string_view to_string(Family family);

/// A mask of `columns` tokens packed with documents of log-normal length (mean 8K sigma 1.2; mean 32K sigma 1.5; mean
/// 16K sigma 1.2 with a prefix that is a uniform share), the last cut to fit.
ColumnMask family_mask(Family family, std::int64_t columns, std::uint64_t seed);

/// Its workload: chunks of 1024 rows, tiles of 128 x 128 at 10 unmasked and 13 partial.
Workload family_workload(Family family, std::int64_t columns, std::int64_t ranks, std::int64_t nodes,
                         std::uint64_t seed);

}  // namespace flashmask::balancing
