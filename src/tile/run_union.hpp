// The union of need sets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "flashmask/needs.hpp"

namespace flashmask::tile {

/// Collects runs of chunks in any order and reads them as one set. Costs what the runs cost, not what lies in them.
class RunUnion {
 public:
  explicit RunUnion(std::int64_t chunks) : chunks_(static_cast<std::size_t>(chunks)) {}

  void clear() { runs_.clear(); }
  void add(std::span<const ChunkRun> runs) { runs_.insert(runs_.end(), runs.begin(), runs.end()); }

  /// Ascending, none touches the next; valid until the next call.
  std::span<const ChunkRun> merged() {
    runs_.size() > chunks_ / kFew ? merge_counting() : merge_sorted();
    return runs_;
  }

 private:
  static constexpr std::size_t kFew = 8;  // from one run for so many chunks on, walking over the chunks is cheaper

  void merge_sorted() {
    std::sort(runs_.begin(), runs_.end(), [](ChunkRun a, ChunkRun b) { return a.begin < b.begin; });
    std::size_t size = 0;
    for (const ChunkRun run : runs_) {
      if (size > 0 && run.begin <= runs_[size - 1].end) {
        runs_[size - 1].end = std::max(runs_[size - 1].end, run.end);
      } else {
        runs_[size++] = run;
      }
    }
    runs_.resize(size);
  }

  void merge_counting() {
    steps_.assign(chunks_ + 1, 0);
    for (const ChunkRun run : runs_) {
      ++steps_[static_cast<std::size_t>(run.begin)];
      --steps_[static_cast<std::size_t>(run.end)];
    }
    runs_.clear();
    std::int64_t over = 0;
    for (std::size_t c = 0; c <= chunks_; ++c) {
      const bool before = over > 0;
      over += steps_[c];
      if (!before && over > 0) runs_.push_back({static_cast<std::int32_t>(c), 0});
      if (before && over == 0) runs_.back().end = static_cast<std::int32_t>(c);
    }
  }

  std::size_t chunks_;
  std::vector<ChunkRun> runs_;
  std::vector<std::int64_t> steps_;  // runs that begin less those that end at a chunk
};

}  // namespace flashmask::tile
