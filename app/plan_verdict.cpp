// `flashmask plan --verify FILE`: what a plan file says, checked by code that shares nothing with the planner.
#include "plan_verdict.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "balance/verify.hpp"
#include "command.hpp"
#include "core/check.hpp"
#include "format/plan_json.hpp"
#include "given.hpp"
#include "report.hpp"

namespace flashmask::app {
namespace {

using core::check;

/// What --verify has no use for: the plan file says it, or nothing is planned.
void check_verify_alone(const PlanRequest& request, const std::string& file, const Plan& plan) {
  const CLI::App& command = *request.mask.command;
  refuse_given(command,
               {"--loads",   "--ranks",        "--nodes",       "--chunk",       "--speeds",      "--unit", "--kind",
                "--epsilon", "--search-seed",  "--steps",       "--proof-steps", "--time-budget", "--svg",  "--compare",
                "--sweep",   "--sweep-chunks", "--sweep-ranks", "--kv-heads",    "--head-dim",    "--dtype"},
               "--verify takes the plan from its file and only checks it");
  const MaskRequest& mask = request.mask;
  const bool named =
      !mask.mask.empty() || !mask.workload.empty() || !mask.import_file.empty() || given(command, "--layers");
  if (!named) {
    refuse_given(command,
                 {"--rows", "--columns", "--batch", "--mask-heads", "--seed", "--tile", "--costs", "--calibration",
                  "--directions", "--window", "--global", "--prefix", "--chunk-length", "--frame", "--left", "--right",
                  "--past", "--buckets"},
                 "it describes a mask or its costs, and no mask is named to verify against");
  }
  if (plan.record().unit == WorkUnit::cells) {
    refuse_given(command, {"--tile", "--costs", "--calibration", "--directions"},
                 "the loads of this plan are cells, not tiles");
  }
  check(!named || plan.record().unit != WorkUnit::bare,
        "--verify {}: its loads are bare numbers, which no mask can confirm; "
        "leave the mask out",
        file);
}

std::string bound_text(const Plan& plan, balancing::BoundCheck bound) {
  switch (bound) {
    case balancing::BoundCheck::trivial:
      return "lower bound 0, as loads are not negative";
    case balancing::BoundCheck::recomputed:
      return fmt::format("lower bound {} recomputed", grouped(plan.lower_bound()));
    case balancing::BoundCheck::searched:
      return fmt::format("lower bound {} confirmed by a search of its own", grouped(plan.lower_bound()));
    default:
      return fmt::format("lower bound {} taken from the file", grouped(plan.lower_bound()));
  }
}

constexpr const char* kAgainstMasks = "chunk loads and need sets agree with the mask";
constexpr const char* kWithoutMasks = "no mask was named, so chunk loads and need sets were taken from the file";

std::string verdict_word(const balancing::Verification& result) {
  return !result.passed() ? "wrong" : result.not_rechecked.empty() ? "ok" : "not_rechecked";
}

format::Json verdict_json(const Plan& plan, const balancing::Verification& result) {
  format::Json::Array findings;
  for (const std::string& finding : result.findings) findings.emplace_back(finding);
  format::Json::Array claims;
  for (const std::string& claim : result.claims) claims.emplace_back(claim);
  format::Json value;
  value.set("format", "flashmask.plan_verdict")
      .set("version", 1)
      .set("verdict", verdict_word(result))
      .set("findings", std::move(findings))
      .set("bound", std::string(to_string(result.bound)))
      .set("not_rechecked", result.not_rechecked)
      .set("claims", std::move(claims))
      .set("against_masks", result.against_masks)
      .set("chunks", plan.chunks())
      .set("peak", plan.peak())
      .set("lower_bound", plan.lower_bound())
      .set("digest", fmt::format("{:016x}", plan.digest()));
  return value;
}

/// The verdict in words: what is wrong, or what was recomputed and what was not.
std::string verdict_text(const Plan& plan, const balancing::Verification& result) {
  std::string out;
  for (const std::string& finding : result.findings) out += fmt::format("WRONG  {}\n", finding);
  if (!result.passed()) return out;
  std::string claims;
  for (const std::string& claim : result.claims) claims += (claims.empty() ? "; not checked: " : ", ") + claim;
  return fmt::format("{}: {} chunks owned once and dealt as {}; loads, peak and traffic recomputed; {}; {}{}\n",
                     result.not_rechecked.empty() ? "ok" : "not all rechecked", plan.chunks(), to_string(plan.kind()),
                     result.not_rechecked.empty() ? bound_text(plan, result.bound) : result.not_rechecked,
                     result.against_masks ? kAgainstMasks : kWithoutMasks, claims);
}

/// How tiles are to be counted again: as the request says, or where it says nothing, as the file does.
WorkloadOptions recount_options(const PlanRequest& request, const PlanMasks& masks, const Plan& plan) {
  WorkloadOptions options = workload_options(request, masks);
  const std::optional<TileWork>& work = plan.record().tile_work;
  const std::vector<std::string> asked = {"--tile", "--costs", "--calibration", "--directions"};
  if (!work ||
      std::any_of(asked.begin(), asked.end(), [&](const std::string& o) { return given(*request.mask.command, o); })) {
    return options;
  }
  options.tile_shape = work->tile_shape;
  options.costs = work->costs;
  options.forward_weight = work->forward_weight;
  options.backward_weight = work->backward_weight;
  return options;
}

}  // namespace

int verify_plan_file(PlanRequest request, const std::string& file, const std::string& json) {
  check_not_over(file, "--verify", {"--json", json});
  const Plan plan = format::parse_plan(read_given("--verify", file), file);
  check_verify_alone(request, file, plan);
  request.chunk = plan.chunk();
  if (plan.record().unit == WorkUnit::cells) request.unit = "cells";
  const MaskRequest& mask = request.mask;
  PlanMasks masks;
  if (!mask.mask.empty() || !mask.workload.empty() || !mask.import_file.empty() || !request.layers.empty()) {
    masks = plan_masks(request);
  }
  const auto documents = masks.masks.empty() ? std::vector<std::int64_t>() : common_documents(masks.masks.front());
  const auto result =
      balancing::verify(plan.record(), masks.weighted(), recount_options(request, masks, plan), documents);
  if (!json.empty()) write_json(json, verdict_json(plan, result));
  if (json != "-") fmt::print("{}", verdict_text(plan, result));
  return !result.passed() ? kCheckFailed : result.not_rechecked.empty() ? 0 : kNotRechecked;
}

}  // namespace flashmask::app
