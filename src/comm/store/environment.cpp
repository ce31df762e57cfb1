#include "core/environment.hpp"

#include "comm/store/store.hpp"
#include "core/check.hpp"

namespace flashmask::comm {
namespace {

std::int64_t required(const char* name, std::int64_t low, std::int64_t high) {
  const auto value = core::environment_integer(name, low, high);
  core::check(value.has_value(),
              "{} is not set: start the ranks with torchrun, or set RANK, WORLD_SIZE, LOCAL_RANK, "
              "LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
              name);
  return *value;
}

}  // namespace

Launch launch_from_environment() {
  Launch launch;
  launch.ranks = static_cast<std::int32_t>(required("WORLD_SIZE", 1, 1 << 20));
  launch.rank = static_cast<std::int32_t>(required("RANK", 0, launch.ranks - 1));
  const auto local =
      static_cast<std::int32_t>(core::environment_integer("LOCAL_WORLD_SIZE", 1, launch.ranks).value_or(launch.ranks));
  launch.local_rank =
      static_cast<std::int32_t>(core::environment_integer("LOCAL_RANK", 0, local - 1).value_or(launch.rank % local));
  core::check(launch.ranks % local == 0, "WORLD_SIZE = {} is no multiple of LOCAL_WORLD_SIZE = {}: nodes must be equal",
              launch.ranks, local);
  core::check(launch.rank % local == launch.local_rank,
              "RANK = {} and LOCAL_RANK = {} with {} ranks a node: ranks of a node must be consecutive", launch.rank,
              launch.local_rank, local);
  launch.nodes = launch.ranks / local;
  if (launch.ranks == 1) return launch;
  const auto host = core::environment("MASTER_ADDR");
  core::check(host.has_value(), "MASTER_ADDR is not set: it names the machine of rank 0");
  launch.host = *host;
  const auto own = core::environment_integer("FLASHMASK_STORE_PORT", 1, 65535);
  launch.port = static_cast<std::uint16_t>(own ? *own : required("MASTER_PORT", 1, 65534) + 1);
  const auto token = core::environment("FLASHMASK_STORE_TOKEN");
  core::check(token.has_value(), "FLASHMASK_STORE_TOKEN is not set: give every rank of the job the same secret");
  launch.token = *token;
  return launch;
}

Bootstrap bootstrap(const Launch& launch, std::chrono::milliseconds deadline) {
  TcpOptions options;
  options.host = launch.host;
  options.port = launch.port;
  options.token = launch.token;
  options.deadline = deadline;
  Bootstrap out;
  if (launch.rank == 0) out.server = serve(options);
  out.store = make_tcp_store(options);
  return out;
}

}  // namespace flashmask::comm
