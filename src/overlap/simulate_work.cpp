#include "overlap/simulate_work.hpp"

#include <algorithm>
#include <queue>

namespace flashmask::overlap {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

constexpr std::int32_t kBlock = 128;

/// SMs that take the next piece of work as they become free.
class Pool {
 public:
  Pool(std::int32_t sms, double start) {
    for (std::int32_t i = 0; i < sms; ++i) free_.push(start);
  }
  double take() {
    const double t = free_.top();
    free_.pop();
    return t;
  }
  void give(double t) {
    free_.push(t);
    end_ = std::max(end_, t);
  }
  [[nodiscard]] double end() const { return end_; }

 private:
  std::priority_queue<double, std::vector<double>, std::greater<>> free_;
  double end_ = 0;
};

}  // namespace

RankWork::RankWork(const ColumnMask& mask, const Owners& owners, const RankNeeds& needs, std::int32_t rank,
                   const SimulatedShape& shape)
    : shape_(shape), batch_(mask.shape().batch), heads_(mask.shape().heads) {
  const auto& lists = needs.lists_of(rank);
  const ColumnMask local = localise(mask, RankRows{owners.columns, owners.chunk, owners.chunks_of[at(rank)]}, lists);
  const TileMap map = TileMap::build(local, {kBlock, kBlock}, TileRule::minmax);
  row_blocks_ = map.row_blocks();
  for (const auto& list : lists) {
    counts_.push_back(static_cast<std::int64_t>(list.size()));
    slots_ = std::max(slots_, counts_.back());
    auto& places = place_of_chunk_.emplace_back(at(owners.chunks()), -1);
    for (std::size_t i = 0; i < list.size(); ++i) places[at(list[i])] = static_cast<std::int32_t>(i);
  }
  tiles_.resize(at(batch_ * heads_ * row_blocks_ * slots_));
  for (std::int64_t b = 0; b < batch_; ++b) {
    for (std::int64_t h = 0; h < heads_; ++h) {
      for (std::int64_t r = 0; r < row_blocks_; ++r) {
        Tiles* const to = &tiles_[at(((b * heads_ + h) * row_blocks_ + r) * slots_)];
        for (const TileRun& run : map.row(b, h, r)) {
          for (std::int64_t block = run.first; block < run.first + run.count; ++block) {
            // A block that touches two chunks waits for both: it belongs to the later one.
            const std::int64_t last = std::min((block + 1) * kBlock, local.shape().columns) - 1;
            Tiles& cell = to[std::min(last / owners.chunk, slots_ - 1)];
            (run.tile_class == TileClass::partial ? cell.partial : cell.unmasked) += 1;
          }
        }
      }
    }
  }
  order_.assign(map.heaviest_first().begin(), map.heaviest_first().end());
}

RankWork::Arrivals RankWork::all_at(double time) const {
  Arrivals out;
  for (const auto count : counts_) out.emplace_back(at(count), time);
  return out;
}

double RankWork::forward(const Arrivals& arrivals, const std::vector<std::vector<std::int32_t>>& visits,
                         const TileSeconds& seconds, std::int32_t sms, double start) const {
  Pool pool(sms, start);
  pool.give(pool.take());
  for (const RowBlock& block : order_) {
    const Tiles* tiles = row(block.batch, block.head, block.block);
    std::vector<std::pair<double, double>> walk;  // arrival, work
    for (const auto c : visits[at(block.batch)]) {
      const std::int32_t place = place_of_chunk_[at(block.batch)][at(c)];
      const double work = tiles[place].time(seconds);
      if (work > 0) walk.emplace_back(arrivals[at(block.batch)][at(place)], work);
    }
    for (std::int64_t head = 0; head < shape_.query_heads / heads_; ++head) {
      double t = pool.take();
      for (const auto& [arrival, work] : walk) t = std::max(t, arrival) + work;
      pool.give(t);
    }
  }
  return pool.end();
}

double RankWork::backward(const Arrivals& arrivals, const std::vector<std::vector<std::int32_t>>& visits,
                          const TileSeconds& seconds, std::int32_t sms, double start, Arrivals& ready) const {
  Pool pool(sms, start);
  pool.give(pool.take());
  ready = all_at(start);
  std::size_t longest = 0;
  for (const auto& visit : visits) longest = std::max(longest, visit.size());
  for (std::size_t turn = 0; turn < longest; ++turn) {
    for (std::int64_t b = 0; b < batch_; ++b) {
      if (turn >= visits[at(b)].size()) continue;
      const std::int32_t place = place_of_chunk_[at(b)][at(visits[at(b)][turn])];
      for (std::int64_t h = 0; h < heads_; ++h) {
        double work = 0;
        for (std::int64_t r = 0; r < row_blocks_; ++r) work += row(b, h, r)[place].time(seconds);
        // One piece of work is a column block of one KV head with all its query heads; a chunk has several of them.
        const double pieces =
            static_cast<double>(shape_.kv_heads) / static_cast<double>(std::min(heads_, shape_.kv_heads));
        const auto group =
            static_cast<double>(shape_.query_heads) / static_cast<double>(std::max(heads_, shape_.kv_heads));
        constexpr int kColumnBlocks = 8;  // pieces a chunk is cut into for the pool; 1,024 columns are eight blocks
        for (int piece = 0; piece < static_cast<int>(pieces) * kColumnBlocks; ++piece) {
          const double t = std::max(pool.take(), arrivals[at(b)][at(place)]) + work * group / kColumnBlocks;
          pool.give(t);
          ready[at(b)][at(place)] = std::max(ready[at(b)][at(place)], t);
        }
      }
    }
  }
  return pool.end();
}

}  // namespace flashmask::overlap
