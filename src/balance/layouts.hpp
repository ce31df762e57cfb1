// The plan kinds that follow a fixed layout.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

/// Rank r owns the next counts[r] chunks.
std::vector<std::int32_t> contiguous(std::span<const std::int32_t> counts);

/// Zigzag: pieces 0..P-1 go up the ranks, pieces P..2P-1 come down. Where the counts are odd, the first piece of a rank
/// is the longer one, so no chunk is padded and counts hold.
std::vector<std::int32_t> dual_chunk(std::span<const std::int32_t> counts);

/// The zigzag inside every document. Throws unsupported naming the document unless each length is a multiple of
/// 2 * ranks * chunk, and invalid_argument unless the documents fill the columns.
std::vector<std::int32_t> per_document_dual_chunk(const Workload& workload);

}  // namespace flashmask::balancing
