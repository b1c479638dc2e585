// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ulb/nfs3.h"

#include <array>

#include "dataplane/ulb/items.h"
#include "dataplane/ulb/nfs2.h"

namespace sluice::ulb {
namespace {

// Sizes of RFC 1813 types, in bytes.
constexpr std::uint64_t kPostOpAttr = 4 + kFattr3;
constexpr std::uint64_t kWccData = 4 + 24 + kPostOpAttr;
constexpr std::uint64_t kPostOpHandle = 4 + 4 + 64;
constexpr std::uint64_t kStatus = 4;
/// Maximum length of a path in Linux (PATH_MAX). RFC 1813 has no limit.
constexpr std::uint64_t kMaxPath = 4096;
constexpr std::uint32_t kMaxHandle = 64;

constexpr std::array<service::ProcedureBinding, kNfs3Procedures> procedure_table() {
  std::array<service::ProcedureBinding, kNfs3Procedures> table{};
  table[kNfs3Write].eligible_arguments = 1;
  table[kNfs3SymLink].eligible_arguments = 1;
  table[kNfs3Read].eligible_results = 1;
  table[kNfs3ReadLink].eligible_results = 1;
  // SETATTR is not idempotent, because it may be guarded by a ctime, which it changes.
  for (const Nfs3Procedure procedure : {kNfs3SetAttr, kNfs3Create, kNfs3MkDir, kNfs3SymLink, kNfs3MkNod,
                                        kNfs3Remove, kNfs3RmDir, kNfs3Rename, kNfs3Link})
    table[procedure].idempotent = false;
  return table;
}
constexpr auto kProcedures = procedure_table();

/// Returns the count argument of a READ-like call, which follows the handle and `bytes_between`. Returns zero
/// if the arguments are truncated.
std::uint64_t count_behind_handle(std::span<const std::byte> arguments, std::uint32_t bytes_between) {
  xdr::Reader reader(arguments);
  reader.opaque(kMaxHandle);
  reader.skip(bytes_between);
  return reader.u32();
}

std::uint64_t max_nfs3_results(std::uint32_t procedure, std::span<const std::byte> arguments) {
  switch (procedure) {
    case kNfs3Null:
      return 0;
    case kNfs3GetAttr:
      return kStatus + kFattr3;
    case kNfs3SetAttr:
    case kNfs3Remove:
    case kNfs3RmDir:
      return kStatus + kWccData;
    case kNfs3Lookup:
      return kStatus + 4 + kMaxHandle + 2 * kPostOpAttr;
    case kNfs3Access:
      return kStatus + kPostOpAttr + 4;
    case kNfs3ReadLink:
      return kStatus + kPostOpAttr + 4 + kMaxPath;
    case kNfs3Read:
      return kStatus + kPostOpAttr + 12 + xdr::padded(count_behind_handle(arguments, 8));
    case kNfs3Write:
      return kStatus + kWccData + 16;
    case kNfs3Create:
    case kNfs3MkDir:
    case kNfs3SymLink:
    case kNfs3MkNod:
      return kStatus + kPostOpHandle + kPostOpAttr + kWccData;
    case kNfs3Rename:
      return kStatus + 2 * kWccData;
    case kNfs3Link:
      return kStatus + kPostOpAttr + kWccData;
    case kNfs3ReadDir:
      return kStatus + kPostOpAttr + 16 + count_behind_handle(arguments, 16);
    case kNfs3ReadDirPlus:
      return kStatus + kPostOpAttr + 16 + count_behind_handle(arguments, 20);
    case kNfs3FsStat:
      return kStatus + kPostOpAttr + 52;
    case kNfs3FsInfo:
      return kStatus + kPostOpAttr + 48;
    case kNfs3PathConf:
      return kStatus + kPostOpAttr + 24;
    case kNfs3Commit:
      return kStatus + kWccData + 8;
    default:
      return 0;
  }
}

/// Finds the item of a call. The arguments of WRITE are handle, offset, count, stability and data. The
/// arguments of SYMLINK are directory, name, attributes and path.
std::size_t nfs3_argument_items(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<service::Item> items) {
  xdr::Reader reader(arguments);
  reader.opaque(kMaxHandle);
  if (procedure == kNfs3Write) {
    reader.skip(16);
  } else if (procedure == kNfs3SymLink) {
    reader.opaque(kMaxPath);
    // A sattr3 has mode, uid, gid and size, each after a flag, and two times, which have a value only if they
    // are set to the client's time.
    constexpr std::uint32_t kToClientTime = 2;
    for (const std::uint32_t bytes : {4, 4, 4, 8})
      if (reader.u32() != 0) reader.skip(bytes);
    for (int time = 0; time < 2; ++time)
      if (reader.u32() == kToClientTime) reader.skip(8);
  } else {
    return 0;
  }
  return item_here(reader, items);
}

/// Finds the item of a reply. The results of READ are attributes, count, eof and data. The results of
/// READLINK are attributes and path.
std::size_t nfs3_result_items(std::uint32_t procedure, std::span<const std::byte> results,
                              service::PlacedResults* placed, std::span<service::Item> items) {
  if (procedure != kNfs3Read && procedure != kNfs3ReadLink) return 0;
  xdr::Reader reader(results);
  if (reader.u32() != 0) return 0;
  if (reader.u32() != 0) reader.skip(kFattr3);
  if (procedure == kNfs3Read) reader.skip(8);
  return item_here(reader, items, placed);
}

std::size_t nfs3_expected_items(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<std::uint32_t> most_bytes) {
  if (procedure == kNfs3Read) return expect_item(count_behind_handle(arguments, 8), most_bytes);
  return procedure == kNfs3ReadLink ? expect_item(0, most_bytes) : 0;
}

/// Returns the upper bound for NFSACL version 3. The results of GETACL are attributes, mask, and two lists of
/// at most kMaxAclEntries entries of three words.
std::uint64_t max_nfsacl_results(std::uint32_t procedure, std::span<const std::byte>) {
  if (procedure == 0) return 0;
  constexpr std::uint64_t kMaxAclEntries = 1024;
  constexpr std::uint64_t kList = 8 + kMaxAclEntries * 12;
  return procedure == 1 ? kStatus + kPostOpAttr + 4 + 2 * kList : kStatus + kPostOpAttr;
}

/// Returns the upper bound for MOUNT. The results of MNT are status, handle and flavors. For DUMP and EXPORT
/// a bound of kMaxLists is assumed, because neither the arguments nor the protocol bound their lists.
std::uint64_t max_mount3_results(std::uint32_t procedure, std::span<const std::byte>) {
  constexpr std::uint64_t kMaxFlavors = 16;
  constexpr std::uint64_t kMaxLists = 64 << 10;
  enum : std::uint32_t { kMnt = 1, kDump = 2, kExport = 5 };
  if (procedure == kMnt) return kStatus + 4 + kMaxHandle + 4 + 4 * kMaxFlavors;
  return procedure == kDump || procedure == kExport ? kMaxLists : 0;
}

service::Repetition nfs3_repetition(std::uint32_t procedure, std::span<const std::byte>) {
  if (procedure == kNfs3Write) return service::Repetition::InOrder;
  return procedure < kNfs3Procedures && kProcedures[procedure].idempotent ? service::Repetition::Harmless
                                                                          : service::Repetition::OnlyOnce;
}

service::Repetition nfsacl_repetition(std::uint32_t procedure, std::span<const std::byte>) {
  constexpr std::uint32_t kGetAcl = 1;
  return procedure == kGetAcl ? service::Repetition::Harmless : service::Repetition::OnlyOnce;
}

/// Returns the effect of repeating a MOUNT call. MNT and UMNT are not harmless, because they change the list
/// that DUMP returns.
service::Repetition mount3_repetition(std::uint32_t procedure, std::span<const std::byte>) {
  enum : std::uint32_t { kDump = 2, kExport = 5 };
  return procedure == kDump || procedure == kExport ? service::Repetition::Harmless
                                                    : service::Repetition::OnlyOnce;
}

bool nfs3_announces_sizes(std::uint32_t procedure, std::span<const std::byte>) {
  return procedure == kNfs3FsInfo;
}

/// Lowers the sizes in FSINFO. Its results are attributes, then maximum size, preferred size and multiple of
/// READ and of WRITE, preferred size of READDIR, and the rest. Lowered sizes stay multiples if possible.
void cap_nfs3_sizes(std::span<std::byte> results, const service::CarriedSizes& most,
                    service::PlacedResults*) {
  constexpr std::uint64_t kRest = 20;  // maxfilesize, time_delta, properties
  constexpr std::size_t kSizes = 7;
  xdr::Reader reader(results);
  if (reader.u32() != 0) return;
  if (reader.boolean()) reader.skip(kFattr3);
  if (!reader.ok() || reader.remaining() < kSizes * xdr::kUnit + kRest) return;
  const auto lower = [&](std::uint32_t multiple) {
    const std::uint32_t whole = multiple > 0 ? most.data_bytes - most.data_bytes % multiple : 0;
    const std::size_t at = reader.position();
    if (reader.u32() > most.data_bytes) xdr::store_u32(&results[at], whole > 0 ? whole : most.data_bytes);
  };
  for (int direction = 0; direction < 2; ++direction) {
    xdr::Reader ahead = reader;
    ahead.skip(2 * xdr::kUnit);
    const std::uint32_t multiple = ahead.u32();
    lower(multiple);
    lower(multiple);
    reader = ahead;
  }
  lower(0);
}

constexpr std::string_view kNfs3Names[] = {
    "null",    "getattr",     "setattr", "lookup", "access",   "readlink", "read",   "write",
    "create",  "mkdir",       "symlink", "mknod",  "remove",   "rmdir",    "rename", "link",
    "readdir", "readdirplus", "fsstat",  "fsinfo", "pathconf", "commit"};
static_assert(std::size(kNfs3Names) == kNfs3Procedures);
constexpr std::string_view kNfsAclNames[] = {"null", "getacl", "setacl"};

constexpr service::Binding kNfs3{.program = kNfsProgram,
                                 .version = kNfs3Version,
                                 .procedures = kProcedures,
                                 .unusable = service::UnusableChunks::Ignore,
                                 .name = "nfs",
                                 .procedure_names = kNfs3Names,
                                 .max_results_bytes = &max_nfs3_results,
                                 .argument_items = &nfs3_argument_items,
                                 .result_items = &nfs3_result_items,
                                 .expected_items = &nfs3_expected_items,
                                 .repetition = &nfs3_repetition,
                                 .announces_sizes = &nfs3_announces_sizes,
                                 .cap_sizes = &cap_nfs3_sizes};
constexpr service::Binding kNfsAcl{.program = kNfsAclProgram,
                                   .version = kNfs3Version,
                                   .procedures = {},
                                   .unusable = service::UnusableChunks::Ignore,
                                   .name = "nfsacl",
                                   .procedure_names = kNfsAclNames,
                                   .max_results_bytes = &max_nfsacl_results,
                                   .repetition = &nfsacl_repetition};

constexpr service::Binding kMount3{.program = kMountProgram,
                                   .version = kNfs3Version,
                                   .procedures = {},
                                   .unusable = service::UnusableChunks::Ignore,
                                   .max_results_bytes = &max_mount3_results,
                                   .repetition = &mount3_repetition};

}  // namespace

const service::Binding& nfs3_binding() noexcept {
  return kNfs3;
}
const service::Binding& nfsacl3_binding() noexcept {
  return kNfsAcl;
}
const service::Binding& mount3_binding() noexcept {
  return kMount3;
}

// --- Version 2

namespace {

// Sizes of RFC 1094 types, in bytes.
constexpr std::uint64_t kHandle2 = 32;
constexpr std::uint64_t kFattr2 = 68;
constexpr std::uint32_t kMaxPath2 = 1024;
constexpr std::uint32_t kMaxName2 = 255;
constexpr std::uint64_t kMaxData2 = 8192;

constexpr std::array<service::ProcedureBinding, kNfs2Procedures> procedure_table_of_2() {
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
constexpr auto kProcedures2 = procedure_table_of_2();

/// Finds the item of a call. The arguments of WRITE are handle, beginoffset, offset, totalcount and data. The
/// arguments of SYMLINK are directory, name, path and attributes.
std::size_t nfs2_argument_items(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<service::Item> items) {
  xdr::Reader reader(arguments);
  reader.skip(kHandle2);
  if (procedure == kNfs2Write)
    reader.skip(12);
  else if (procedure == kNfs2SymLink)
    reader.opaque(kMaxName2);
  else
    return 0;
  return item_here(reader, items);
}

service::Repetition nfs2_repetition(std::uint32_t procedure, std::span<const std::byte>) {
  if (procedure == kNfs2Write || procedure == kNfs2SetAttr) return service::Repetition::InOrder;
  return procedure < kNfs2Procedures && kProcedures2[procedure].idempotent ? service::Repetition::Harmless
                                                                           : service::Repetition::OnlyOnce;
}

/// Finds the item of a reply. The results of READ are attributes and data. The result of READLINK is a path.
std::size_t nfs2_result_items(std::uint32_t procedure, std::span<const std::byte> results,
                              service::PlacedResults* placed, std::span<service::Item> items) {
  if (procedure != kNfs2Read && procedure != kNfs2ReadLink) return 0;
  xdr::Reader reader(results);
  if (reader.u32() != 0) return 0;
  if (procedure == kNfs2Read) reader.skip(kFattr2);
  return item_here(reader, items, placed);
}

std::size_t nfs2_expected_items(std::uint32_t procedure, std::span<const std::byte>,
                                std::span<std::uint32_t> most_bytes) {
  if (procedure == kNfs2Read) return expect_item(kMaxData2, most_bytes);
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
      return kStatus + kFattr2;
    case kNfs2Lookup:
    case kNfs2Create:
    case kNfs2MkDir:
      return kStatus + kHandle2 + kFattr2;
    case kNfs2ReadLink:
      return kStatus + 4 + kMaxPath2;
    case kNfs2Read:
      return kStatus + kFattr2 + 4 + kMaxData2;
    case kNfs2ReadDir: {
      xdr::Reader reader(arguments);
      reader.skip(kHandle2 + 4);
      return kStatus + 8 + std::uint64_t{reader.u32()};
    }
    case kNfs2StatFs:
      return kStatus + 20;
    default:
      return kStatus;
  }
}

/// Returns the upper bound for NFSACL version 2. Results are as in version 3, but with the attributes of
/// version 2.
std::uint64_t max_nfsacl2_results(std::uint32_t procedure, std::span<const std::byte>) {
  if (procedure == 0) return 0;
  constexpr std::uint64_t kMaxAclEntries = 1024;
  constexpr std::uint64_t kList = 8 + kMaxAclEntries * 12;
  return procedure == 1 ? kStatus + kFattr2 + 4 + 2 * kList : kStatus + kFattr2 + 4;
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
                                 .procedures = kProcedures2,
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
