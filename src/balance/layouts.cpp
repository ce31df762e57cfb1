#include "balance/layouts.hpp"

#include <numeric>

#include "balance/instance.hpp"
#include "core/check.hpp"

namespace flashmask::balancing {

std::vector<std::int32_t> contiguous(std::span<const std::int32_t> counts) {
  std::vector<std::int32_t> rank_of;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    rank_of.insert(rank_of.end(), static_cast<std::size_t>(counts[r]), static_cast<std::int32_t>(r));
  }
  return rank_of;
}

std::vector<std::int32_t> dual_chunk(std::span<const std::int32_t> counts) {
  std::vector<std::int32_t> rank_of;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    rank_of.insert(rank_of.end(), static_cast<std::size_t>((counts[r] + 1) / 2), static_cast<std::int32_t>(r));
  }
  for (std::size_t r = counts.size(); r-- > 0;) {
    rank_of.insert(rank_of.end(), static_cast<std::size_t>(counts[r] / 2), static_cast<std::int32_t>(r));
  }
  return rank_of;
}

std::vector<std::int32_t> per_document_dual_chunk(const Workload& workload) {
  core::check(!workload.documents.empty(),
              "documents is empty: per_document_dual_chunk needs the document lengths; give them or take dual_chunk");
  const std::int64_t columns = std::accumulate(workload.documents.begin(), workload.documents.end(), std::int64_t{0});
  core::check(
      columns == workload.chunks() * workload.chunk,
      "documents sum to {} tokens but {} chunks of {} are planned; they must fill them exactly: take another chunk, or "
      "dual_chunk",
      columns, workload.chunks(), workload.chunk);
  std::vector<std::int32_t> rank_of;
  const std::int64_t unit = 2 * workload.ranks * workload.chunk;
  for (std::size_t d = 0; d < workload.documents.size(); ++d) {
    const std::int64_t length = workload.documents[d];
    if (length % unit != 0) {
      core::fail(ErrorCode::unsupported,
                 "document {} has {} tokens, not a multiple of 2 * ranks * chunk = {}, so its "
                 "pieces would cut chunks; take a smaller chunk, hcc_ipo or dual_chunk",
                 d, length, unit);
    }
    const auto inside = dual_chunk(chunk_counts(length / workload.chunk, workload.ranks));
    rank_of.insert(rank_of.end(), inside.begin(), inside.end());
  }
  return rank_of;
}

}  // namespace flashmask::balancing
