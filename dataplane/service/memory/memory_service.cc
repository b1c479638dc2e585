// SPDX-License-Identifier: Apache-2.0
//
// Dispatch, access control, the procedures on attributes and on the whole file system, and access lists:
// NFSACL version 3 as Linux and Solaris implement it (there is no RFC; secattr is a mask and two lists, each
// a count and a counted array of type, id and permissions). Exports store modes, not access lists: GETACL
// returns the mode as a list; SETACL accepts a list that a mode can express, and refuses others with
// NFS3ERR_NOTSUPP.
#include "dataplane/service/memory/memory_service.h"

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::service::memory {

const std::array<MemoryService::Handler, ulb::kNfs3Procedures> MemoryService::kHandlers = {
    &MemoryService::null,      &MemoryService::read_only, &MemoryService::setattr,
    &MemoryService::read_only, &MemoryService::read_only, &MemoryService::read_only,
    &MemoryService::read_only, &MemoryService::write,     &MemoryService::create,
    &MemoryService::mkdir,     &MemoryService::symlink,   &MemoryService::mknod,
    &MemoryService::remove,    &MemoryService::rmdir,     &MemoryService::rename,
    &MemoryService::link,      &MemoryService::readdir,   &MemoryService::readdirplus,
    &MemoryService::fsstat,    &MemoryService::read_only, &MemoryService::read_only,
    &MemoryService::read_only,
};

MemoryService::MemoryService(rdma::MemoryRegion region, rdma::MemoryRegion zeros,
                             const MemoryServiceConfig& config, FileSystem::Clock wall_clock)
    : fs_(region, config.max_files, config.handle_key, wall_clock),
      max_io_bytes_(smaller_of(config.max_io_bytes, kMaxTransferBytes)),
      pad_{zeros.bytes.subspan(kLargeBytes), zeros.lkey},
      exports_(config.exports),
      statistics_(kMaxExports + 1),
      context_{.fs = fs_,
               .exports = exports_,
               .statistics = statistics_,
               .max_io_bytes = max_io_bytes_,
               .write_verifier = write_verifier_,
               .data = region.bytes,
               .data_lkey = region.lkey,
               .zeros = {zeros.bytes.first(kLargeBytes), zeros.lkey}},
      replies_(config.handle_key),
      acl_(*this) {
  if (pad_.bytes.size() < xdr::kUnit)
    throw SetupError("The memory export needs a region for holes and padding of more than 64 KiB.");
  if (exports_.size() > kMaxExports)
    throw SetupError("There are more than " + std::to_string(kMaxExports) + " exports. Remove some.");
  if (!make_roots()) throw SetupError("max_files is smaller than the number of exports. Raise max_files.");
  // Differs after each restart (RFC 1813, section 3.3.7).
  xdr::store_u64(write_verifier_.data(), fs_.start());
}

bool MemoryService::make_roots() noexcept {
  bool all = true;
  for (std::uint32_t id = 0; id < exports_.size(); ++id) {
    ExportOptions& options = exports_[id];
    if (!options.in_use) {
      fs_.close_export(id);
      continue;
    }
    options.in_use = fs_.set_export(id, options.path, options.quota_bytes);
    all &= options.in_use;
  }
  for (std::uint32_t id = static_cast<std::uint32_t>(exports_.size()); id < kMaxExports; ++id)
    fs_.close_export(id);
  return all;
}

void MemoryService::exchange_exports(std::vector<ExportOptions>& exports) noexcept {
  if (!SLUICE_INVARIANT(exports.size() <= kMaxExports, table_index)) return;
  exports_.swap(exports);
  make_roots();  // an export without a free inode for its root is not in use
}

// --- Dispatch ------------------------------------------------------------------------------------

Execution MemoryService::execute(Call& call) noexcept {
  SLUICE_INVARIANT_DEBUG(!keep_reply_, call_slot_state);
  const std::uint32_t procedure = call.header().procedure;
  if (procedure >= ulb::kNfs3Procedures) {
    call.complete(rpc::AcceptStat::ProcUnavail);
    return Execution::Started;
  }
  if (call.has_state() && call.state<Transfer>().writing) {
    commit_placed(call);
    return Execution::Started;
  }
  if (procedure != ulb::kNfs3Null && !authenticate(call)) return Execution::Started;
  if (procedure == ulb::kNfs3ReadDir || procedure == ulb::kNfs3ReadDirPlus) {
    const std::uint64_t wanted = binding().max_results_bytes(procedure, call.arguments());
    if (!call.require_results(smaller_of<std::uint64_t>(wanted, kMaxReaddirBytes)))
      return Execution::NeedsMemory;
  }
  keep_reply_ = !binding().procedure(procedure).idempotent;
  if (keep_reply_ && answer_again(call)) return keep_reply_ = false, Execution::Started;
  effect_ = DuplicateRequestCache::Effect::Changed;
  xdr::Reader in(call.arguments());
  (this->*kHandlers[procedure])(call, in);
  keep_reply_ = false;
  return Execution::Started;
}

bool MemoryService::answer_again(Call& call) noexcept {
  reply_key_ = replies_.key_of(call);
  const auto results = replies_.find(reply_key_, call.peer_host(), fs_.now_ns());
  if (results.empty()) return false;
  statistics_[current_export_].repeated.add(1);
  call.results().opaque_fixed(results);
  call.complete(rpc::AcceptStat::Success);
  return true;
}

DuplicateRequestCache::Reader MemoryService::reader_of_reply(const Call& call) const noexcept {
  const bool named = current_export_ < exports_.size() && !exports_[current_export_].hosts.empty();
  return named ? replies_.only(call.peer_host()) : DuplicateRequestCache::Reader::Anyone;
}

void MemoryService::succeed(Call& call, Status status) noexcept {
  SLUICE_INVARIANT_DEBUG(current_export_ < statistics_.size(), table_index);
  statistics_[current_export_].count(call.header(), status);
  if (keep_reply_) {
    const DuplicateRequestCache::Effect effect =
        status == Status::Ok ? effect_ : DuplicateRequestCache::Effect::None;
    SLUICE_INVARIANT_DEBUG(reply_key_.xid == call.header().xid, xid_table);
    replies_.keep(reply_key_, reader_of_reply(call), effect, call.results().written(), fs_.now_ns());
  }
  fs_.publish();
  call.complete(rpc::AcceptStat::Success);
}

void MemoryService::end_with_wcc(Call& call, Status status, const WccBefore& before) noexcept {
  put_status(call.results(), status);
  put_wcc_data(call.results(), fs_, before);
  succeed(call, status);
}

void MemoryService::end_with_attr(Call& call, Status status, InodeNumber number) noexcept {
  put_status(call.results(), status);
  put_post_op_attr(call.results(), fs_, number);
  succeed(call, status);
}

// --- Access --------------------------------------------------------------------------------------

/// Authenticates a call; the first step of every call, when its export is not known yet. Only AUTH_NONE and
/// AUTH_SYS are served.
bool MemoryService::authenticate(Call& call) noexcept {
  current_export_ = kNoExport;
  if (is_served(call.header().credential)) return true;
  call.deny(rpc::AuthStat::BadCred);
  return false;
}

MemoryService::Target MemoryService::target(Call& call, std::span<const std::byte> handle) noexcept {
  Target result;
  const FileSystem::Found found = fs_.find(handle);
  result.status = found.status;
  if (found.status != Status::Ok) return result;
  const std::uint32_t id = fs_.inode(found.number).export_id;
  if (id >= exports_.size() || !exports_[id].in_use) {
    result.status = Status::Stale;
    return result;
  }
  current_export_ = id;
  const ExportOptions& options = exports_[id];
  if (!options.serves(call.peer(), call.peer_host())) {
    result.status = Status::Acces;
    return result;
  }
  result.number = found.number;
  result.options = &options;
  result.credential = squash(call, options);
  return result;
}

// --- Attributes ----------------------------------------------------------------------------------

void MemoryService::null(Call& call, xdr::Reader&) noexcept {
  call.complete(rpc::AcceptStat::Success);
}

/// Clears the set-id bits, because a program must not keep them after a change by another user than root.
void MemoryService::strip_set_id(Inode& inode) noexcept {
  if (inode.type != FileType::Regular) return;
  inode.mode &= static_cast<std::uint16_t>(~kSetUid);
  if ((inode.mode & 010) != 0) inode.mode &= static_cast<std::uint16_t>(~kSetGid);
}

Status MemoryService::set_attributes(const Target& object, const SetAttributes& set) noexcept {
  const Inode& before = fs_.inode(object.number);
  const Credential& who = object.credential;
  if (object.options->read_only) return Status::RoFs;
  const bool owner = owns(before, who);
  if (set.mode && !owner) return Status::Perm;
  if (set.uid && *set.uid != before.uid && who.uid != 0) return Status::Perm;
  if (set.gid && *set.gid != before.gid && who.uid != 0 && !(owner && in_group(who, *set.gid)))
    return Status::Perm;
  const bool client_times =
      set.atime == SetAttributes::Time::Client || set.mtime == SetAttributes::Time::Client;
  const bool times =
      set.atime != SetAttributes::Time::DontChange || set.mtime != SetAttributes::Time::DontChange;
  if (client_times && !owner) return Status::Perm;
  if (times && !owner && !allows(before, who, kWrite)) return Status::Acces;
  if (set.size) {
    if (before.type == FileType::Directory) return Status::IsDir;
    if (before.type != FileType::Regular) return Status::Inval;
    if (!owner && !allows(before, who, kWrite)) return Status::Acces;
    if (*set.size > kMaxFileBytes) return Status::FBig;
    if (const Status status = fs_.truncate(object.number, *set.size); status != Status::Ok) return status;
    fs_.change(object.number).mtime_ns = fs_.now_ns();
  }
  Inode& inode = fs_.change(object.number);
  const bool root = who.uid == 0;
  if ((set.uid || set.gid || set.size) && !root) strip_set_id(inode);
  if (set.mode) {
    inode.mode = *set.mode;
    if (!root && !in_group(who, set.gid.value_or(inode.gid)))
      inode.mode &= static_cast<std::uint16_t>(~kSetGid);
  }
  if (set.uid) inode.uid = *set.uid;
  if (set.gid) inode.gid = *set.gid;
  if (set.atime != SetAttributes::Time::DontChange)
    inode.atime_ns = set.atime == SetAttributes::Time::Client ? set.atime_ns : fs_.now_ns();
  if (set.mtime != SetAttributes::Time::DontChange)
    inode.mtime_ns = set.mtime == SetAttributes::Time::Client ? set.mtime_ns : fs_.now_ns();
  inode.ctime_ns = fs_.now_ns();
  return Status::Ok;
}

void MemoryService::setattr(Call& call, xdr::Reader& in) noexcept {
  const auto handle = in.opaque(kMaxNfsHandle);
  const SetAttributes set = get_sattr3(in);
  const bool guarded = in.boolean();
  const std::uint64_t guard_ns = guarded ? get_time(in) : 0;
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target object = target(call, handle);
  if (object.status != Status::Ok) return end_with_wcc(call, object.status, {});
  const WccBefore before = wcc_before(fs_, object.number);
  if (guarded && guard_ns != before.ctime_ns) return end_with_wcc(call, Status::NotSync, before);
  end_with_wcc(call, set_attributes(object, set), before);
}

// --- The file system as a whole ------------------------------------------------------------------

void MemoryService::fsstat(Call& call, xdr::Reader& in) noexcept {
  const auto handle = in.opaque(kMaxNfsHandle);
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target object = target(call, handle);
  if (object.status != Status::Ok) return end_with_attr(call, object.status, 0);
  xdr::Writer& out = call.results();
  put_status(out, Status::Ok);
  put_post_op_attr(out, fs_, object.number);
  const ExportUse& use = fs_.use(current_export_);
  const std::uint64_t capacity = fs_.blocks().capacity_bytes();
  const std::uint64_t total = use.quota_bytes != 0 ? smaller_of(use.quota_bytes, capacity) : capacity;
  const std::uint64_t left = total > use.used_bytes ? total - use.used_bytes : 0;
  const std::uint64_t free_bytes = smaller_of(left, fs_.free_bytes());
  for (const std::uint64_t value : {total, free_bytes, free_bytes, std::uint64_t{fs_.max_files()},
                                    fs_.free_files(), fs_.available_files(current_export_)})
    out.u64(value);
  out.u32(0);  // invarsec: may change immediately
  succeed(call, Status::Ok);
}

// --- Access lists --------------------------------------------------------------------------------

namespace {

enum Mask : std::uint32_t { kAcl = 1, kAclCount = 2, kDefaultAcl = 4, kDefaultAclCount = 8, kAll = 15 };
enum EntryType : std::uint32_t {
  kUserObj = 1,
  kUser = 2,
  kGroupObj = 4,
  kGroup = 8,
  kClassObj = 16,
  kOtherObj = 32
};
constexpr std::uint32_t kMaxAclEntries = 1024;

/// Content of a list of entries.
struct ParsedAcl {
  bool named_entries = false;  ///< has users or groups besides the three of a mode
  std::uint32_t entries = 0;
  std::uint32_t seen = 0;  ///< EntryType
  bool repeated = false;
  std::uint16_t owner = 0;
  std::uint16_t group = 0;
  std::uint16_t other = 0;
  std::uint16_t mask = 7;

  bool complete() const noexcept {
    constexpr std::uint32_t kNeeded = kUserObj | kGroupObj | kOtherObj;
    return !repeated && (seen & kNeeded) == kNeeded;
  }
  /// Returns the mode. The mask limits the group (POSIX 1003.1e draft 17, section 23.1.5).
  std::uint16_t mode() const noexcept {
    return static_cast<std::uint16_t>(owner << 6 | (group & mask) << 3 | other);
  }
};

ParsedAcl get_acl_list(xdr::Reader& in) noexcept {
  constexpr std::uint32_t kDefaultFlag = 0x1000;  // set in the entries of a default list
  ParsedAcl acl;
  in.u32();  // number of entries, whether they follow or not
  acl.entries = in.u32();
  if (acl.entries > kMaxAclEntries) in.fail();
  for (std::uint32_t i = 0; i < acl.entries && in.ok(); ++i) {
    const std::uint32_t type = in.u32() & ~kDefaultFlag;
    in.u32();  // id: that of the file's own owner and group, or of a named entry
    const auto permissions = static_cast<std::uint16_t>(in.u32() & 7);
    switch (type) {
      case kUserObj:
        acl.owner = permissions;
        break;
      case kGroupObj:
        acl.group = permissions;
        break;
      case kOtherObj:
        acl.other = permissions;
        break;
      case kClassObj:
        acl.mask = permissions;
        break;
      default:
        acl.named_entries = true;
        continue;
    }
    acl.repeated = acl.repeated || (acl.seen & type) != 0;
    acl.seen |= type;
  }
  return acl;
}

}  // namespace

Execution MemoryService::AclService::execute(Call& call) noexcept {
  switch (call.header().procedure) {
    case 0:
      call.complete(rpc::AcceptStat::Success);
      break;
    case 1:
      if (memory_.authenticate(call)) get_acl(call);
      break;
    case 2:
      if (memory_.authenticate(call)) set_acl(call);
      break;
    default:
      call.complete(rpc::AcceptStat::ProcUnavail);
  }
  return Execution::Started;
}

void MemoryService::AclService::get_acl(Call& call) noexcept {
  xdr::Reader in(call.arguments());
  const auto handle = in.opaque(kMaxNfsHandle);
  const std::uint32_t mask = in.u32();
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target object = memory_.target(call, handle);
  const Status status = object.status == Status::Ok && (mask & ~kAll) != 0 ? Status::Inval : object.status;
  if (status != Status::Ok) return memory_.end_with_attr(call, status, object.number);
  const Inode& inode = memory_.fs_.inode(object.number);
  xdr::Writer& out = call.results();
  put_status(out, Status::Ok);
  put_post_op_attr(out, memory_.fs_, object.number);
  out.u32(mask);
  constexpr std::uint32_t kEntries = 4;
  out.u32(mask & (kAcl | kAclCount) ? kEntries : 0);
  out.u32(mask & kAcl ? kEntries : 0);
  if (mask & kAcl) {
    const auto entry = [&](std::uint32_t type, std::uint32_t id, std::uint32_t permissions) {
      out.u32(type);
      out.u32(id);
      out.u32(permissions & 7);
    };
    entry(kUserObj, inode.uid, inode.mode >> 6u);
    entry(kGroupObj, inode.gid, inode.mode >> 3u);
    entry(kClassObj, 0, inode.mode >> 3u);
    entry(kOtherObj, 0, inode.mode);
  }
  out.u32(0);  // no default list
  out.u32(0);
  memory_.succeed(call, Status::Ok);
}

void MemoryService::AclService::set_acl(Call& call) noexcept {
  xdr::Reader in(call.arguments());
  const auto handle = in.opaque(kMaxNfsHandle);
  const std::uint32_t mask = in.u32();
  const ParsedAcl acl = get_acl_list(in);
  const ParsedAcl default_acl = get_acl_list(in);
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target object = memory_.target(call, handle);
  if (object.status != Status::Ok) return memory_.end_with_attr(call, object.status, 0);
  Status status = Status::Ok;
  if ((mask & ~kAll) != 0) {
    status = Status::Inval;
  } else if (object.options->read_only) {
    status = Status::RoFs;
  } else if (acl.named_entries || ((mask & kDefaultAcl) && default_acl.entries > 0)) {
    status = Status::NotSupp;
  } else if ((mask & kAcl) &&
             acl.entries > 0) {  // an empty list removes the list and leaves the mode unchanged
    const auto kept = static_cast<std::uint16_t>(memory_.fs_.inode(object.number).mode & ~0777);
    status = acl.complete()
                 ? memory_.set_attributes(object, {.mode = static_cast<std::uint16_t>(kept | acl.mode())})
                 : Status::Inval;
  }
  memory_.end_with_attr(call, status, object.number);
}

}  // namespace sluice::service::memory
