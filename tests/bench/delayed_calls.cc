// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/delayed_calls.h"

#include <string>

#include "cli/bench/client.h"
#include "dataplane/service/api/null.h"
#include "dataplane/ulb/bindings.h"
#include "dataplane/ulb/nfs3.h"
#include "tests/bench/nfs_calls.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kFiles = 160;
constexpr std::uint32_t kUnstable = 0;

std::string file_name(std::uint32_t number) {
  return "a-file-with-a-name-of-some-length-" + std::to_string(1000 + number);
}

/// Returns a call whose arguments `arguments` writes.
template <typename Arguments>
DelayedCall nfs3(std::uint32_t procedure, Arguments&& arguments) {
  CallBuilder builder(ulb::kNfsProgram, ulb::kNfs3Version, procedure);
  const std::size_t header_bytes = builder.message().size();
  arguments(builder.arguments());
  const auto message = builder.message();
  const std::uint64_t results =
      ulb::nfs3_binding().max_results_bytes(procedure, message.subspan(header_bytes));
  return {.message = {message.begin(), message.end()},
          .max_reply_bytes = static_cast<std::uint32_t>(rpc::kMinReplyBytes + results)};
}

DelayedCall bulk(std::uint32_t call_bytes, std::uint32_t reply_bytes) {
  DelayedCall call{.message = Bytes(rpc::kMinCallBytes + xdr::kUnit + call_bytes),
                   .max_reply_bytes = static_cast<std::uint32_t>(rpc::kMinReplyBytes) + reply_bytes,
                   .has_status = false};
  xdr::Writer writer(call.message);
  rpc::encode_call(writer, {.program = service::kNullProgram,
                            .version = service::kNullVersion,
                            .procedure = service::kBulkProcedure,
                            .credential = {},
                            .verifier = {}});
  writer.u32(reply_bytes);
  return call;
}

DelayedCall getattr(const DelayedFiles& files) {
  return nfs3(ulb::kNfs3GetAttr, [&](xdr::Writer& out) { out.opaque(files.file); });
}
DelayedCall lookup(const DelayedFiles& files) {
  return nfs3(ulb::kNfs3Lookup, [&](xdr::Writer& out) {
    out.opaque(files.directory);
    out.string(file_name(0));
  });
}
DelayedCall access(const DelayedFiles& files) {
  constexpr std::uint32_t kEverything = 0x3f;
  return nfs3(ulb::kNfs3Access, [&](xdr::Writer& out) {
    out.opaque(files.file);
    out.u32(kEverything);
  });
}
DelayedCall readdir(const DelayedFiles& files) {
  return nfs3(ulb::kNfs3ReadDir, [&](xdr::Writer& out) {
    out.opaque(files.directory);
    out.words(0, 0, 0, 0, kLongBytes);  // from the beginning
  });
}
DelayedCall readdirplus(const DelayedFiles& files) {
  return nfs3(ulb::kNfs3ReadDirPlus, [&](xdr::Writer& out) {
    out.opaque(files.directory);
    out.words(0, 0, 0, 0, kLongBytes, kLongBytes);
  });
}
DelayedCall write(const DelayedFiles& files, std::uint32_t bytes) {
  DelayedCall call = nfs3(ulb::kNfs3Write, [&](xdr::Writer& out) {
    out.opaque(files.file);
    out.words(0, 0, bytes, kUnstable, bytes);
  });
  call.data_bytes = bytes;
  return call;
}

constexpr Work kWorks[] = {
    {"call_8k", [](const DelayedFiles&) { return std::vector{bulk(kLongBytes, 0)}; }},
    {"reply_8k", [](const DelayedFiles&) { return std::vector{bulk(0, kLongBytes)}; }},
    {"readdir", [](const DelayedFiles& files) { return std::vector{readdir(files)}; }},
    {"write_2k", [](const DelayedFiles& files) { return std::vector{write(files, kMostWriteBytes / 2)}; }},
    {"write_4k", [](const DelayedFiles& files) { return std::vector{write(files, kMostWriteBytes)}; }},
    {"metadata",
     [](const DelayedFiles& files) {
       return std::vector{getattr(files), lookup(files),      access(files), getattr(files), lookup(files),
                          getattr(files), readdirplus(files), lookup(files), access(files),  getattr(files)};
     }},
};

}  // namespace

std::span<const Work> works() {
  return kWorks;
}

DelayedFiles make_files(std::span<const std::byte> root,
                        const std::function<Bytes(const DelayedCall&)>& transact) {
  DelayedFiles files{.directory = {root.begin(), root.end()}, .file = {}};
  for (std::uint32_t i = 0; i < kFiles; ++i) {
    const Bytes created = transact(nfs3(ulb::kNfs3Create, [&](xdr::Writer& out) {
      out.opaque(root);
      out.string(file_name(i));
      out.words(0, 1, 0666, 0, 0, 0, 0, 0);  // UNCHECKED; only the mode is set
    }));
    xdr::Reader reader = expect_success(created);
    if (!reader.boolean()) throw std::runtime_error("CREATE answered no file handle.");
    const auto handle = reader.opaque(64);
    files.file.assign(handle.begin(), handle.end());
  }
  return files;
}

}  // namespace sluice::bench
