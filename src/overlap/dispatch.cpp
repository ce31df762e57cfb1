#include "flashmask/dispatch.hpp"

#include "core/check.hpp"

namespace flashmask {
namespace {

void check_rank(const Plan& plan, std::int64_t rank) {
  core::check(rank >= 0 && rank < plan.ranks(), "rank = {}: the plan has ranks 0 to {}", rank, plan.ranks() - 1);
}

/// Copies every chunk of the rank between the tensor and the shard; `copy(tensor offset, shard offset, bytes)`.
template <typename F>
void for_each_piece(const Plan& plan, std::int64_t rank, std::int64_t batch, std::size_t row_bytes, const F& copy) {
  const std::int64_t local = plan.rows_of(rank);
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t row = b * local;
    for (const std::int64_t c : plan.chunks_of(rank)) {
      const std::int64_t count = plan.chunk_end(c) - plan.chunk_begin(c);
      copy(static_cast<std::size_t>(b * plan.columns() + plan.chunk_begin(c)) * row_bytes,
           static_cast<std::size_t>(row) * row_bytes, static_cast<std::size_t>(count) * row_bytes);
      row += count;
    }
  }
}

Positions dispatch_positions(PositionKind kind, const Plan& plan, std::int64_t rank, std::span<const std::int64_t> all,
                             std::int64_t batch) {
  return {kind, dispatch<std::int64_t>(plan, rank, all, batch)};
}

}  // namespace

std::string_view to_string(PositionKind kind) {
  switch (kind) {
    case PositionKind::global_row:
      return "global_row";
    case PositionKind::in_document:
      return "in_document";
    case PositionKind::tree_depth:
      return "tree_depth";
  }
  return "unknown";
}

std::vector<std::int64_t> global_rows(const Plan& plan, std::int64_t rank) {
  check_rank(plan, rank);
  std::vector<std::int64_t> rows;
  for (const std::int64_t c : plan.chunks_of(rank)) {
    for (std::int64_t r = plan.chunk_begin(c); r < plan.chunk_end(c); ++r) rows.push_back(r);
  }
  return rows;
}

Shard dispatch(const Plan& plan, std::int64_t rank, std::span<const std::byte> tensor, std::int64_t batch,
               std::size_t row_bytes) {
  check_rank(plan, rank);
  core::check(batch >= 0, "batch = {}: allowed are 0 and more", batch);
  const std::size_t wanted = static_cast<std::size_t>(batch * plan.columns()) * row_bytes;
  core::check(tensor.size() == wanted, "the tensor has {} bytes: batch {} x {} tokens x {} bytes are {}", tensor.size(),
              batch, plan.columns(), row_bytes, wanted);
  Shard shard{plan.digest(), rank, batch, row_bytes, {}};
  shard.data.resize(static_cast<std::size_t>(batch * plan.rows_of(rank)) * row_bytes);
  for_each_piece(plan, rank, batch, row_bytes, [&](std::size_t from, std::size_t to, std::size_t bytes) {
    if (bytes > 0) std::memcpy(shard.data.data() + to, tensor.data() + from, bytes);
  });
  return shard;
}

void check_shard(const Plan& plan, const Shard& shard) {
  core::check(
      shard.plan_digest == plan.digest(),
      "the shard of rank {} was cut by the plan {:#018x}, this is {:#018x}: undispatch with the plan that dispatched",
      shard.rank, shard.plan_digest, plan.digest());
}

std::vector<std::byte> undispatch(const Plan& plan, std::span<const Shard> shards) {
  core::check(static_cast<std::int64_t>(shards.size()) == plan.ranks(),
              "{} shards for {} ranks: give one of every rank", shards.size(), plan.ranks());
  std::vector<bool> seen(shards.size(), false);
  const std::int64_t batch = shards.front().batch;
  const std::size_t row_bytes = shards.front().row_bytes;
  std::vector<std::byte> tensor(static_cast<std::size_t>(batch * plan.columns()) * row_bytes);
  for (const Shard& shard : shards) {
    check_shard(plan, shard);
    check_rank(plan, shard.rank);
    core::check(!seen[static_cast<std::size_t>(shard.rank)], "two shards of rank {}", shard.rank);
    seen[static_cast<std::size_t>(shard.rank)] = true;
    core::check(
        shard.batch == batch && shard.row_bytes == row_bytes &&
            shard.data.size() == static_cast<std::size_t>(batch * plan.rows_of(shard.rank)) * row_bytes,
        "the shard of rank {} has {} bytes, batch {} and {} bytes a token: it does not fit the others or the plan",
        shard.rank, shard.data.size(), shard.batch, shard.row_bytes);
    for_each_piece(plan, shard.rank, batch, row_bytes, [&](std::size_t to, std::size_t from, std::size_t bytes) {
      if (bytes > 0) std::memcpy(tensor.data() + to, shard.data.data() + from, bytes);
    });
  }
  return tensor;
}

Positions global_row_positions(const Plan& plan, std::int64_t rank, std::int64_t batch) {
  const auto rows = global_rows(plan, rank);
  Positions out{PositionKind::global_row, {}};
  for (std::int64_t b = 0; b < batch; ++b) out.values.insert(out.values.end(), rows.begin(), rows.end());
  return out;
}

Positions in_document_positions(const Plan& plan, std::int64_t rank,
                                std::span<const std::vector<std::int64_t>> documents) {
  std::vector<std::int64_t> all;
  for (std::size_t b = 0; b < documents.size(); ++b) {
    const auto end = static_cast<std::int64_t>(b + 1) * plan.columns();
    for (const std::int64_t length : documents[b]) {
      core::check(length >= 0 && length <= end - static_cast<std::int64_t>(all.size()),
                  "documents[{}] has a length of {} with {} tokens left: the lengths must sum to at most {}", b, length,
                  end - static_cast<std::int64_t>(all.size()), plan.columns());
      for (std::int64_t i = 0; i < length; ++i) all.push_back(i);
    }
    for (std::int64_t i = 0; static_cast<std::int64_t>(all.size()) < end; ++i) all.push_back(i);
  }
  return dispatch_positions(PositionKind::in_document, plan, rank, all, static_cast<std::int64_t>(documents.size()));
}

Positions tree_depth_positions(const Plan& plan, std::int64_t rank, std::span<const std::vector<std::int64_t>> depths) {
  std::vector<std::int64_t> all;
  for (std::size_t b = 0; b < depths.size(); ++b) {
    core::check(static_cast<std::int64_t>(depths[b].size()) <= plan.columns(), "depths[{}] has {} tokens, the plan {}",
                b, depths[b].size(), plan.columns());
    all.insert(all.end(), depths[b].begin(), depths[b].end());
    const auto end = static_cast<std::int64_t>(b + 1) * plan.columns();
    for (std::int64_t i = 0; static_cast<std::int64_t>(all.size()) < end; ++i) all.push_back(i);
  }
  return dispatch_positions(PositionKind::tree_depth, plan, rank, all, static_cast<std::int64_t>(depths.size()));
}

}  // namespace flashmask
