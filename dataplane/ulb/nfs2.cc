// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ulb/nfs2.h"

#include <array>

#include "dataplane/ulb/items.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::ulb {
namespace {

// Sizes of RFC 1094 types, in bytes.
constexpr std::uint64_t kHandle = 32;
constexpr std::uint64_t kFattr = 68;
constexpr std::uint64_t kStatus = 4;
constexpr std::uint32_t kMaxPath = 1024;
constexpr std::uint32_t kMaxName = 255;
constexpr std::uint64_t kMaxData = 8192;

constexpr std::array<service::ProcedureBinding, kNfs2Procedures> procedure_table() {
  std::array<service::ProcedureBinding, kNfs2Procedures> table{};
  table[kNfs2Write].eligible_arguments = 1;
  table[kNfs2SymLink].eligible_arguments = 1;
  table[kNfs2Read].eligible_results = 1;
  table[kNfs2ReadLink].eligible_results = 1;
  for (const Nfs2Procedure procedure :
       {kNfs2Create, kNfs2Remove, kNfs2Rename, kNfs2Link, kNfs2SymLink, kNfs2MkDir, kNfs2RmDir})
    table[procedure].idempotent = false;
  return table;
}
constexpr auto kProcedures = procedure_table();

/// WRITE: handle, beginoffset, offset, totalcount, data. SYMLINK: directory, name, path, attributes.
std::size_t nfs2_argument_items(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<service::Item> items) {
  xdr::Reader reader(arguments);
  reader.skip(kHandle);
  if (procedure == kNfs2Write)
    reader.skip(12);
  else if (procedure == kNfs2SymLink)
    reader.opaque(kMaxName);
  else
    return 0;
  return item_here(reader, items);
}

service::Repetition nfs2_repetition(std::uint32_t procedure, std::span<const std::byte>) {
  if (procedure == kNfs2Write || procedure == kNfs2SetAttr) return service::Repetition::InOrder;
  return procedure < kNfs2Procedures && kProcedures[procedure].idempotent ? service::Repetition::Harmless
                                                                          : service::Repetition::OnlyOnce;
}

/// READ: attributes, data. READLINK: path.
std::size_t nfs2_result_items(std::uint32_t procedure, std::span<const std::byte> results,
                              service::PlacedResults* placed, std::span<service::Item> items) {
  if (procedure != kNfs2Read && procedure != kNfs2ReadLink) return 0;
  xdr::Reader reader(results);
  if (reader.u32() != 0) return 0;
  if (procedure == kNfs2Read) reader.skip(kFattr);
  return item_here(reader, items, placed);
}

std::size_t nfs2_expected_items(std::uint32_t procedure, std::span<const std::byte>,
                                std::span<std::uint32_t> most_bytes) {
  if (procedure == kNfs2Read) return expect_item(kMaxData, most_bytes);
  return procedure == kNfs2ReadLink ? expect_item(0, most_bytes) : 0;
}

std::uint64_t max_nfs2_results(std::uint32_t procedure, std::span<const std::byte> arguments) {
  switch (procedure) {
    case kNfs2Null:
    case kNfs2Root:
    case kNfs2WriteCache:
      return 0;
    case kNfs2GetAttr:
    case kNfs2SetAttr:
    case kNfs2Write:
      return kStatus + kFattr;
    case kNfs2Lookup:
    case kNfs2Create:
    case kNfs2MkDir:
      return kStatus + kHandle + kFattr;
    case kNfs2ReadLink:
      return kStatus + 4 + kMaxPath;
    case kNfs2Read:
      return kStatus + kFattr + 4 + kMaxData;
    case kNfs2ReadDir: {
      xdr::Reader reader(arguments);
      reader.skip(kHandle + 4);
      return kStatus + 8 + std::uint64_t{reader.u32()};
    }
    case kNfs2StatFs:
      return kStatus + 20;
    default:
      return kStatus;
  }
}

/// As in version 3, with the attributes of version 2.
std::uint64_t max_nfsacl2_results(std::uint32_t procedure, std::span<const std::byte>) {
  if (procedure == 0) return 0;
  constexpr std::uint64_t kMaxAclEntries = 1024;
  constexpr std::uint64_t kList = 8 + kMaxAclEntries * 12;
  return procedure == 1 ? kStatus + kFattr + 4 + 2 * kList : kStatus + kFattr + 4;
}

service::Repetition nfsacl2_repetition(std::uint32_t procedure, std::span<const std::byte>) {
  constexpr std::uint32_t kSetAcl = 2;
  return procedure == kSetAcl ? service::Repetition::OnlyOnce : service::Repetition::Harmless;
}

constexpr std::string_view kNames[] = {"null", "getattr", "setattr", "root",   "lookup",  "readlink",
                                       "read", "wrcache", "write",   "create", "remove",  "rename",
                                       "link", "symlink", "mkdir",   "rmdir",  "readdir", "statfs"};
static_assert(std::size(kNames) == kNfs2Procedures);
constexpr std::string_view kAclNames[] = {"null", "getacl", "setacl", "getattr", "access"};

constexpr service::Binding kNfs2{.program = kNfsProgram,
                                 .version = kNfs2Version,
                                 .procedures = kProcedures,
                                 .unusable = service::UnusableChunks::Ignore,
                                 .name = "nfs",
                                 .procedure_names = kNames,
                                 .max_results_bytes = &max_nfs2_results,
                                 .argument_items = &nfs2_argument_items,
                                 .result_items = &nfs2_result_items,
                                 .expected_items = &nfs2_expected_items,
                                 .repetition = &nfs2_repetition};
constexpr service::Binding kNfsAcl2{.program = kNfsAclProgram,
                                    .version = kNfs2Version,
                                    .procedures = {},
                                    .unusable = service::UnusableChunks::Ignore,
                                    .name = "nfsacl",
                                    .procedure_names = kAclNames,
                                    .max_results_bytes = &max_nfsacl2_results,
                                    .repetition = &nfsacl2_repetition};

}  // namespace

const service::Binding& nfs2_binding() noexcept {
  return kNfs2;
}
const service::Binding& nfsacl2_binding() noexcept {
  return kNfsAcl2;
}

}  // namespace sluice::ulb
