// A cluster for `flashmask simulate`, from a JSON file or the built-in one.
#pragma once

#include <cstdint>
#include <string>

#include "overlap/simulate.hpp"

namespace flashmask::app {

struct NamedCluster {
  std::string name;
  std::int64_t nodes = 2;
  std::int64_t gpus_per_node = 8;
  double forward_tflops = 0, backward_tflops = 0;          ///< of one device on unmasked tiles
  double forward_partial = 1.08, backward_partial = 1.08;  ///< time of a partial tile over an unmasked one
  overlap::Cluster cluster;                                ///< tile times are filled in by `tiles_for`
};

/// Two nodes of eight H100s; docs/overlap.md says where every number comes from.
NamedCluster built_in_cluster();
/// Reads {"format": "flashmask.cluster", "version": 1, ...} (docs/overlap.md). Throws naming the file and the member.
NamedCluster read_cluster(const std::string& path);
/// The cluster with tile times for `head_dim`.
overlap::Cluster tiles_for(const NamedCluster& named, std::int64_t head_dim);

}  // namespace flashmask::app
