// SPDX-License-Identifier: Apache-2.0
//
// Dispatch, access control, and the procedures on attributes and on the whole file system.
#include "dataplane/service/memory/memory_service.h"

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::service::memory {

const std::array<MemoryService::Handler, ulb::kNfs3Procedures> MemoryService::kHandlers = {
    &MemoryService::null,     &MemoryService::getattr,     &MemoryService::setattr, &MemoryService::lookup,
    &MemoryService::access,   &MemoryService::readlink,    &MemoryService::read,    &MemoryService::write,
    &MemoryService::create,   &MemoryService::mkdir,       &MemoryService::symlink, &MemoryService::mknod,
    &MemoryService::remove,   &MemoryService::rmdir,       &MemoryService::rename,  &MemoryService::link,
    &MemoryService::readdir,  &MemoryService::readdirplus, &MemoryService::fsstat,  &MemoryService::fsinfo,
    &MemoryService::pathconf, &MemoryService::commit,
};

MemoryService::MemoryService(rdma::MemoryRegion region, rdma::MemoryRegion zeros,
                             const MemoryServiceConfig& config, FileSystem::Clock wall_clock)
    : fs_(region, config.max_files, config.handle_key, wall_clock),
      max_io_bytes_(smaller_of(config.max_io_bytes, kMaxTransferBytes)),
      zeros_{zeros.bytes.first(kLargeBytes), zeros.lkey},
      pad_{zeros.bytes.subspan(kLargeBytes), zeros.lkey},
      exports_(config.exports),
      statistics_(kMaxExports + 1),
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
  if (call.state<Transfer>().writing) {
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
  ++statistics_[current_export_].repeated;
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
  ExportStatistics& statistics = statistics_[current_export_];
  const std::uint64_t failed = status != Status::Ok ? 1 : 0;
  ++statistics.calls;
  statistics.errors += failed;
  if (call.header().program == ulb::kNfsProgram) {
    ProcedureStatistics& procedure = statistics.procedures[call.header().procedure];
    ++procedure.calls;
    procedure.errors += failed;
  }
  if (keep_reply_) {
    const DuplicateRequestCache::Effect effect =
        status == Status::Ok ? effect_ : DuplicateRequestCache::Effect::None;
    SLUICE_INVARIANT_DEBUG(reply_key_.xid == call.header().xid, xid_table);
    replies_.keep(reply_key_, reader_of_reply(call), effect, call.results().written(), fs_.now_ns());
  }
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
  const rpc::OpaqueAuth& credential = call.header().credential;
  if (credential.flavor == rpc::AuthFlavor::None) return true;
  if (credential.flavor == rpc::AuthFlavor::Sys && rpc::decode_auth_sys(credential.body).ok) return true;
  call.deny(rpc::AuthStat::BadCred);
  return false;
}

MemoryService::Credential MemoryService::squash(const Call& call, const ExportOptions& options) noexcept {
  Credential credential{.uid = options.anonuid, .gid = options.anongid};
  if (call.header().credential.flavor != rpc::AuthFlavor::Sys || options.all_squash) return credential;
  const rpc::AuthSys sys = rpc::decode_auth_sys(call.header().credential.body).sys;
  const bool root = sys.uid == 0 && options.root_squash;
  if (root) return credential;
  const std::uint32_t root_gid = options.root_squash ? options.anongid : 0;
  credential.uid = sys.uid;
  credential.gid = sys.gid == 0 ? root_gid : sys.gid;
  credential.gid_count = sys.gid_count;
  for (std::uint32_t i = 0; i < sys.gid_count; ++i)
    credential.gids[i] = sys.gids[i] == 0 ? root_gid : sys.gids[i];
  return credential;
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

bool MemoryService::in_group(const Credential& credential, std::uint32_t gid) noexcept {
  return credential.gid == gid || has_element(std::span(credential.gids, credential.gid_count), gid);
}

bool MemoryService::allows(const Inode& inode, const Credential& credential,
                           std::uint16_t wanted) const noexcept {
  if (credential.uid == 0) {
    // Root may do everything except execute a file without an execute bit.
    return (wanted & kExecute) == 0 || inode.type == FileType::Directory || (inode.mode & 0111) != 0;
  }
  std::uint16_t granted = inode.mode & 7;
  if (credential.uid == inode.uid)
    granted = inode.mode >> 6 & 7;
  else if (in_group(credential, inode.gid))
    granted = inode.mode >> 3 & 7;
  return (granted & wanted) == wanted;
}

// --- Attributes ----------------------------------------------------------------------------------

void MemoryService::null(Call& call, xdr::Reader&) noexcept {
  call.complete(rpc::AcceptStat::Success);
}

void MemoryService::getattr(Call& call, xdr::Reader& in) noexcept {
  const auto handle = in.opaque(kMaxNfsHandle);
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target object = target(call, handle);
  put_status(call.results(), object.status);
  if (object.status == Status::Ok) put_fattr3(call.results(), fs_.inode(object.number), object.number);
  succeed(call, object.status);
}

/// Clears the set-id bits, because a program must not keep them after a change by another user than root.
void MemoryService::strip_set_id(Inode& inode) noexcept {
  if (inode.type != FileType::Regular) return;
  inode.mode &= static_cast<std::uint16_t>(~kSetUid);
  if ((inode.mode & 010) != 0) inode.mode &= static_cast<std::uint16_t>(~kSetGid);
}

Status MemoryService::set_attributes(const Target& object, const SetAttributes& set) noexcept {
  Inode& inode = fs_.inode(object.number);
  const Credential& who = object.credential;
  if (object.options->read_only) return Status::RoFs;
  const bool owner = owns(inode, who);
  if (set.mode && !owner) return Status::Perm;
  if (set.uid && *set.uid != inode.uid && who.uid != 0) return Status::Perm;
  if (set.gid && *set.gid != inode.gid && who.uid != 0 && !(owner && in_group(who, *set.gid)))
    return Status::Perm;
  const bool client_times =
      set.atime == SetAttributes::Time::Client || set.mtime == SetAttributes::Time::Client;
  const bool times =
      set.atime != SetAttributes::Time::DontChange || set.mtime != SetAttributes::Time::DontChange;
  if (client_times && !owner) return Status::Perm;
  if (times && !owner && !allows(inode, who, kWrite)) return Status::Acces;
  if (set.size) {
    if (inode.type == FileType::Directory) return Status::IsDir;
    if (inode.type != FileType::Regular) return Status::Inval;
    if (!owner && !allows(inode, who, kWrite)) return Status::Acces;
    if (*set.size > kMaxFileBytes) return Status::FBig;
    if (const Status status = fs_.truncate(object.number, *set.size); status != Status::Ok) return status;
    inode.mtime_ns = fs_.now_ns();
  }
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

void MemoryService::access(Call& call, xdr::Reader& in) noexcept {
  enum : std::uint32_t {
    kReadBit = 1,
    kLookupBit = 2,
    kModifyBit = 4,
    kExtendBit = 8,
    kDeleteBit = 16,
    kExecuteBit = 32
  };
  const auto handle = in.opaque(kMaxNfsHandle);
  const std::uint32_t wanted = in.u32();
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target object = target(call, handle);
  if (object.status != Status::Ok) return end_with_attr(call, object.status, 0);
  const Inode& inode = fs_.inode(object.number);
  const bool directory = inode.type == FileType::Directory;
  std::uint32_t granted = 0;
  if (allows(inode, object.credential, kRead)) granted |= kReadBit;
  if (allows(inode, object.credential, kExecute))
    granted |= std::uint32_t{directory ? kLookupBit : kExecuteBit};
  if (!object.options->read_only && allows(inode, object.credential, kWrite))
    granted |= kModifyBit | kExtendBit | (directory ? std::uint32_t{kDeleteBit} : 0u);
  put_status(call.results(), Status::Ok);
  put_post_op_attr(call.results(), fs_, object.number);
  call.results().u32(granted & wanted);
  succeed(call, Status::Ok);
}

// --- The file system as a whole ------------------------------------------------------------------

/// Begins the results of a procedure whose only argument is a handle, with the attributes of the object.
/// Returns null if the call has ended with an error.
xdr::Writer* MemoryService::begin_of_object(Call& call, xdr::Reader& in) noexcept {
  const auto handle = in.opaque(kMaxNfsHandle);
  if (!in.ok()) {
    call.complete(rpc::AcceptStat::GarbageArgs);
    return nullptr;
  }
  const Target object = target(call, handle);
  if (object.status != Status::Ok) {
    end_with_attr(call, object.status, 0);
    return nullptr;
  }
  put_status(call.results(), Status::Ok);
  put_post_op_attr(call.results(), fs_, object.number);
  return &call.results();
}

void MemoryService::fsstat(Call& call, xdr::Reader& in) noexcept {
  xdr::Writer* const out = begin_of_object(call, in);
  if (out == nullptr) return;
  const ExportUse& use = fs_.use(current_export_);
  const std::uint64_t capacity = fs_.blocks().capacity_bytes();
  const std::uint64_t total = use.quota_bytes != 0 ? smaller_of(use.quota_bytes, capacity) : capacity;
  const std::uint64_t left = total > use.used_bytes ? total - use.used_bytes : 0;
  const std::uint64_t free_bytes = smaller_of(left, fs_.free_bytes());
  for (const std::uint64_t value : {total, free_bytes, free_bytes, std::uint64_t{fs_.max_files()},
                                    fs_.free_files(), fs_.available_files(current_export_)})
    out->u64(value);
  out->u32(0);  // invarsec: may change immediately
  succeed(call, Status::Ok);
}

void MemoryService::fsinfo(Call& call, xdr::Reader& in) noexcept {
  enum : std::uint32_t { kLinks = 1, kSymlinks = 2, kHomogeneous = 8, kCanSetTime = 16 };
  xdr::Writer* const out = begin_of_object(call, in);
  if (out == nullptr) return;
  for (const std::uint32_t value : {max_io_bytes_, max_io_bytes_, kSmallBytes, max_io_bytes_, max_io_bytes_,
                                    kSmallBytes, kMaxReaddirBytes})
    out->u32(value);
  out->u64(kMaxFileBytes);
  put_time(*out, 1);  // time_delta: a nanosecond
  out->u32(kLinks | kSymlinks | kHomogeneous | kCanSetTime);
  succeed(call, Status::Ok);
}

void MemoryService::pathconf(Call& call, xdr::Reader& in) noexcept {
  xdr::Writer* const out = begin_of_object(call, in);
  if (out == nullptr) return;
  out->u32(kMaxLinks);
  out->u32(kMaxNameBytes);
  out->boolean(true);   // no_trunc
  out->boolean(true);   // chown_restricted
  out->boolean(false);  // case_insensitive
  out->boolean(true);   // case_preserving
  succeed(call, Status::Ok);
}

}  // namespace sluice::service::memory
