#include "overlap/needs.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "tile/run_union.hpp"

namespace flashmask::overlap {

Owners Owners::of(const Plan& plan) {
  core::check(plan.chunks() < (std::int64_t{1} << 31) && plan.ranks() < (std::int64_t{1} << 31),
              "a plan of {} chunks on {} ranks: allowed are fewer than 2^31 of both", plan.chunks(), plan.ranks());
  Owners owners;
  owners.ranks = static_cast<std::int32_t>(plan.ranks());
  owners.nodes = static_cast<std::int32_t>(plan.nodes());
  owners.columns = plan.columns();
  owners.chunk = plan.chunk();
  owners.chunks_of.resize(static_cast<std::size_t>(plan.ranks()));
  for (std::int64_t c = 0; c < plan.chunks(); ++c) {
    const std::int64_t rank = plan.rank_of_chunk(c);
    owners.rank_of_chunk.push_back(static_cast<std::int32_t>(rank));
    owners.chunks_of[static_cast<std::size_t>(rank)].push_back(static_cast<std::int32_t>(c));
  }
  return owners;
}

std::int64_t Owners::rows_of(std::int32_t c) const {
  return std::min(chunk, columns - c * chunk);
}

std::int64_t Owners::local_rows(std::int32_t rank) const {
  std::int64_t rows = 0;
  for (const auto c : chunks_of[static_cast<std::size_t>(rank)]) rows += rows_of(c);
  return rows;
}

RankNeeds RankNeeds::build(const ColumnMask& mask, const Owners& owners, Pruning pruning) {
  const MaskShape& m = mask.shape();
  core::check(m.rows == m.columns,
              "the mask has {} rows and {} columns: context parallelism needs as many rows as columns", m.rows,
              m.columns);
  core::check(owners.columns == m.columns, "the plan deals {} tokens but the mask has {}: plan this mask",
              owners.columns, m.columns);
  const NeedRuns runs = pruning == Pruning::on ? NeedRuns::build(mask, owners.chunk) : NeedRuns();
  const ChunkRun every{0, owners.chunks()};
  RankNeeds needs;
  needs.batch_ = static_cast<std::int32_t>(m.batch);
  needs.lists_.assign(static_cast<std::size_t>(owners.ranks), {});
  needs.needers_.assign(static_cast<std::size_t>(m.batch), {});
  for (auto& by_chunk : needs.needers_) by_chunk.resize(static_cast<std::size_t>(owners.chunks()));
  tile::RunUnion seen(owners.chunks());
  for (std::int32_t r = 0; r < owners.ranks; ++r) {
    for (std::int32_t b = 0; b < needs.batch_; ++b) {
      seen.clear();
      if (pruning == Pruning::off && owners.chunks() > 0) seen.add({&every, 1});
      for (const auto own : owners.chunks_of[static_cast<std::size_t>(r)]) {
        if (pruning == Pruning::on) seen.add(runs.row(b, own));
      }
      std::vector<std::int32_t>& list = needs.lists_[static_cast<std::size_t>(r)].emplace_back();
      for (const ChunkRun& run : seen.merged()) {
        for (std::int32_t c = run.begin; c < run.end; ++c) {
          list.push_back(c);
          needs.needers_[static_cast<std::size_t>(b)][static_cast<std::size_t>(c)].push_back(r);
        }
      }
    }
  }
  return needs;
}

std::int32_t RankNeeds::slot(std::int32_t rank, std::int32_t b, std::int32_t chunk) const {
  const auto& list = chunks_of(rank, b);
  const auto at = std::lower_bound(list.begin(), list.end(), chunk);
  return at != list.end() && *at == chunk ? static_cast<std::int32_t>(at - list.begin()) : -1;
}

}  // namespace flashmask::overlap
