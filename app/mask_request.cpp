#include "mask_request.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

#include "core/check.hpp"
#include "format/fields.hpp"
#include "format/json.hpp"
#include "given.hpp"

namespace flashmask::app {
namespace {

using core::check;

constexpr std::int64_t kDefaultRows = 8192;

/// "unbounded" or a number of keys.
masks::WindowSide parse_side(const std::string& text, const char* option) {
  if (text == "unbounded") return masks::WindowSide::unbounded();
  std::int64_t keys = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), keys);
  check(status == std::errc{} && end == text.data() + text.size() && keys >= 0,
        "{} {}: expected \"unbounded\" or a number of keys >= 0", option, text);
  return masks::WindowSide::keys(keys);
}

masks::BuilderOptions options_of(const MaskRequest& request) {
  masks::BuilderOptions options;
  options.rows = request.rows.value_or(kDefaultRows);
  options.columns = request.columns;
  options.batch = request.batch;
  options.mask_heads = request.mask_heads;
  options.seed = request.seed;
  options.window = request.window;
  options.prefix = request.prefix;
  options.chunk = request.chunk;
  options.frame = request.frame;
  options.global = request.global;
  options.buckets = request.buckets;
  options.left = parse_side(request.left, "--left");
  options.right = parse_side(request.right, "--right");
  options.past = parse_side(request.past, "--past");
  return options;
}

/// Refuses a mask that would look at documents a workload of trees does not have, or the other way round, and one that
/// looks at neither and so could not keep the workload's padding dead.
void check_fits(const std::string& builder, const format::Workload& workload) {
  static constexpr std::string_view kOfDocuments[] = {"causal_document", "document", "share_question",
                                                      "causal_blockwise", "prefix_lm_document"};
  const bool tree =
      std::any_of(workload.batch.begin(), workload.batch.end(), [](const auto& row) { return !row.tree.empty(); });
  const bool wants_documents =
      std::find(std::begin(kOfDocuments), std::end(kOfDocuments), builder) != std::end(kOfDocuments);
  check(!tree || !wants_documents, "--mask {} needs documents, but workload {} has trees", builder, workload.name);
  check(tree || builder != "prefix_tree", "--mask prefix_tree needs trees, but workload {} has documents",
        workload.name);
  const bool padded =
      std::any_of(workload.batch.begin(), workload.batch.end(), [](const auto& row) { return row.padding > 0; });
  check(
      !padded || wants_documents || builder == "prefix_tree",
      "--mask {} looks at no documents, so the padding of workload {} would not be dead: take a mask of documents or a "
      "workload without padding",
      builder, workload.name);
}

/// An option that only some builders read, and the member of BuilderOptions it sets. (--seed is everybody's.)
struct Detail {
  std::string option;
  std::string_view member;
};

const std::vector<Detail>& details() {
  static const std::vector<Detail> all = {
      {"--window", "window"},      {"--global", "global"}, {"--prefix", "prefix"},
      {"--chunk-length", "chunk"}, {"--frame", "frame"},   {"--past", "past"},
      {"--left", "left"},          {"--right", "right"},   {"--buckets", "buckets"},
  };
  return all;
}

/// Refuses options that the builder (or none of the builders served together) reads.
void check_details(const MaskRequest& request, const std::string& builder) {
  const auto names = masks::builder_names();
  const bool known = std::any_of(names.begin(), names.end(), [&](const auto& n) { return n.name == builder; });
  if (request.command == nullptr || !known) return;
  const std::vector<std::string> served = request.served.empty() ? std::vector{builder} : request.served;
  for (const Detail& detail : details()) {
    std::string readers;
    bool read = false;
    for (const masks::BuilderName& name : names) {
      if (std::ranges::find(name.options, detail.member) == name.options.end()) continue;
      read = read || std::ranges::find(served, name.name) != served.end();
      readers += fmt::format("{}{}", readers.empty() ? "" : " and ", name.name);
    }
    if (!read)
      refuse_given(*request.command, {detail.option},
                   fmt::format("mask {} has no use for it, only {}", builder, readers));
  }
}

void check_import(const MaskRequest& request) {
  if (request.command == nullptr) return;
  constexpr std::string_view kWhy = "--import takes the whole mask from its file";
  refuse_given(*request.command, {"--mask", "--workload", "--rows", "--columns", "--batch", "--mask-heads"}, kWhy);
  for (const Detail& detail : details()) refuse_given(*request.command, {detail.option}, kWhy);
}

/// What a request asks masks::build() for.
struct Resolved {
  std::string builder;
  masks::BuilderOptions options;
  std::optional<format::Workload> workload;  ///< its trees and documents are in the options
};

Resolved resolve_workload(const MaskRequest& request, const std::string& source) {
  // The tokens of a workload are the columns; rows are the last of them.
  const std::optional<std::int64_t> asked = request.columns ? request.columns : request.rows;
  check(!asked || *asked > 0, "{} 0 with workload {}{}: expected 1 to {} tokens; leave it out for the workload's own",
        request.columns ? "--columns" : "--rows", source,
        request.workload.empty() ? ", the default where neither --mask nor --workload is given" : "",
        format::kMaxTokens);
  const std::int64_t tokens = asked.value_or(0);
  format::Workload workload =
      format::load_workload(source, {.rows = tokens, .batch = request.batch, .seed = request.seed});
  masks::BuilderOptions options = options_of(request);
  masks::BuilderOptions packed = format::builder_options(workload);
  options.rows = request.columns ? request.rows.value_or(workload.rows) : workload.rows;
  options.columns = workload.rows;
  options.batch = packed.batch;
  options.documents = std::move(packed.documents);
  options.trees = std::move(packed.trees);
  const std::string builder = request.mask.empty() ? workload.mask : request.mask;
  check_fits(builder, workload);
  check_details(request, builder);
  check(request.command == nullptr || !given(*request.command, "--batch") ||
            request.batch == static_cast<std::int64_t>(workload.batch.size()),
        "--batch {}: workload {} has {} batch rows; leave it out", request.batch, source, workload.batch.size());
  return {builder, std::move(options), std::move(workload)};
}

NamedMask build_workload(const MaskRequest& request, const std::string& source) {
  Resolved resolved = resolve_workload(request, source);
  const std::string& builder = resolved.builder;
  // Whoever named the builder is at fault where it does not exist or does not serve these rows.
  ColumnMask mask = request.mask.empty()
                        ? format::naming(source, [&] { return masks::build(builder, resolved.options); })
                        : masks::build(builder, resolved.options);
  NamedMask named{
      fmt::format("{} of {}", builder, format::escaped(resolved.workload->name)), builder, std::move(mask), {}};
  named.workload = std::move(resolved.workload);
  return named;
}

/// The workload of a request, empty if it names a mask alone.
std::string source_of(const MaskRequest& request, const std::string& default_workload) {
  if (!request.workload.empty() || !request.mask.empty()) return request.workload;
  check(!default_workload.empty(), "name a mask: --mask, --workload or --import");
  return default_workload;
}

/// Refuses a builder that does not exist, in the words of masks::build().
void check_builder(const std::string& builder) {
  const auto names = masks::builder_names();
  const bool known = std::any_of(names.begin(), names.end(), [&](const auto& n) { return n.name == builder; });
  if (!known) masks::build(builder, {});
}

/// Refuses one that was asked for by the option that names it.
void check_asked_builder(const MaskRequest& request) {
  if (request.mask.empty()) return;
  format::naming((request.served.empty() ? "--mask " : "--layers ") + request.mask,
                 [&] { check_builder(request.mask); });
}

std::string builder_list() {
  std::string list;
  for (const auto& builder : masks::builder_names())
    list += fmt::format("\n    {:<22} {}", builder.name, builder.description);
  return list;
}

std::string generator_list() {
  std::string list;
  for (const auto& info : format::generators()) list += fmt::format("\n    {:<26} {}", info.form, info.meaning);
  return list;
}

void add_details(CLI::App& command, MaskRequest& request) {
  const std::string details = "Details of some builders";
  const auto length = whole_number(0, format::kMaxTokens);
  command.add_option("--window", request.window, "sliding_window: keys; global_sliding_window: reach")
      ->check(length)
      ->group(details);
  command.add_option("--global", request.global, "global_sliding_window: global tokens")
      ->check(length)
      ->capture_default_str()
      ->group(details);
  command.add_option("--prefix", request.prefix, "prefix_lm_causal: prefix length")->check(length)->group(details);
  const auto piece = whole_number(1, format::kMaxTokens);
  command.add_option("--chunk-length", request.chunk, "chunked: chunk length")->check(piece)->group(details);
  command.add_option("--frame", request.frame, "video_block_causal: frame length")->check(piece)->group(details);
  command.add_option("--left", request.left, "window: keys before the own one, or unbounded")
      ->capture_default_str()
      ->group(details);
  command.add_option("--right", request.right, "window: keys behind it, or unbounded")
      ->capture_default_str()
      ->group(details);
  command.add_option("--past", request.past, "video_block_causal: earlier frames, or unbounded")
      ->capture_default_str()
      ->group(details);
  command.add_option("--buckets", request.buckets, "hash_sparse: buckets")
      ->check(whole_number(1, 1 << 30))
      ->capture_default_str()
      ->group(details);
}

}  // namespace

void add_mask_options(CLI::App& command, MaskRequest& request) {
  request.command = &command;
  const std::string group = "Which mask";
  command.add_option("--mask", request.mask, "Builder, or the mask to lay over a workload:" + builder_list())
      ->group(group);
  command.add_option("--workload", request.workload, "A workload file, or a generator:" + generator_list())
      ->group(group);
  auto* import =
      command.add_option("--import", request.import_file, "A file with a mask of another library (JSON)")->group(group);
  command.add_option("--format", request.import_format, "What --import holds: " + import_formats())
      ->capture_default_str()
      ->needs(import)
      ->group(group);
  command.add_flag("--causal", request.causal, "--import: causal, where the format leaves it open")
      ->needs(import)
      ->group(group);

  const std::string sizes = "Its size";
  command.add_option("--rows", request.rows, "Query rows (tokens); default: the workload's, else 8192")
      ->check(whole_number(0, format::kMaxTokens))
      ->group(sizes);
  command
      .add_option("--columns", request.columns,
                  "Key columns, the tokens of a workload; default: rows. Rows are the last of the columns")
      ->check(whole_number(0, format::kMaxTokens))
      ->group(sizes);
  command.add_option("--batch", request.batch, "Batch rows")
      ->check(whole_number(1, format::kMaxBatch))
      ->capture_default_str()
      ->group(sizes);
  command.add_option("--mask-heads", request.mask_heads, "Masks per batch row: 1, the KV heads or the query heads")
      ->check(whole_number(1, 65536))
      ->capture_default_str()
      ->group(sizes);
  command.add_option("--seed", request.seed, "Seed of everything drawn")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str()
      ->group(sizes);
  add_details(command, request);
}

NamedMask build(const MaskRequest& request, const std::string& default_workload) {
  if (!request.import_file.empty()) {
    check_import(request);
    return {format::escaped(request.import_file),
            "",
            import_mask(request.import_file, request.import_format, request.causal),
            {}};
  }
  check_asked_builder(request);
  if (const std::string source = source_of(request, default_workload); !source.empty()) {
    return build_workload(request, source);
  }
  check_details(request, request.mask);
  return {request.mask, request.mask, masks::build(request.mask, options_of(request)), {}};
}

MaskShape check_request(const MaskRequest& request, const std::string& default_workload) {
  if (!request.import_file.empty()) return build(request, default_workload).mask.shape();
  check_asked_builder(request);
  if (const std::string source = source_of(request, default_workload); !source.empty()) {
    const Resolved resolved = resolve_workload(request, source);
    check_builder(resolved.builder);
    return masks::shape_of(resolved.options);
  }
  check_details(request, request.mask);
  return masks::shape_of(options_of(request));
}

}  // namespace flashmask::app
