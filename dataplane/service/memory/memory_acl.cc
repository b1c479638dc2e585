// SPDX-License-Identifier: Apache-2.0
//
// Attributes on the wire, and access lists: NFSACL version 3 as Linux and Solaris implement it (there is no
// RFC; secattr is a mask and two lists, each a count and a counted array of type, id and permissions).
// Exports store modes, not access lists: GETACL returns the mode as a list; SETACL accepts a list that a mode
// can express, and refuses others with NFS3ERR_NOTSUPP.
#include "dataplane/base/invariant.h"
#include "dataplane/service/memory/memory_service.h"

namespace sluice::service::memory {
void put_fattr3(xdr::Writer& out, const Inode& inode, InodeNumber number) noexcept {
  out.u32(static_cast<std::uint32_t>(inode.type));
  out.u32(inode.mode);
  out.u32(inode.links);
  out.u32(inode.uid);
  out.u32(inode.gid);
  out.u64(inode.size);
  out.u64(inode.used_bytes);
  out.u32(inode.device_major);
  out.u32(inode.device_minor);
  out.u64(std::uint64_t{inode.export_id} + 1);  // fsid
  out.u64(number);                              // fileid
  put_time(out, inode.atime_ns);
  put_time(out, inode.mtime_ns);
  put_time(out, inode.ctime_ns);
}

void put_post_op_attr(xdr::Writer& out, FileSystem& fs, InodeNumber number) noexcept {
  const bool there = number != 0 && fs.inode(number).type != FileType::None;
  out.boolean(there);
  if (there) put_fattr3(out, fs.inode(number), number);
}

void put_post_op_fh3(xdr::Writer& out, FileSystem& fs, InodeNumber number) noexcept {
  out.boolean(true);
  SLUICE_INVARIANT_DEBUG(number != 0, file_storage);
  out.opaque(fs.handle_of(number));
}

WccBefore wcc_before(FileSystem& fs, InodeNumber number) noexcept {
  const Inode& inode = fs.inode(number);
  SLUICE_INVARIANT_DEBUG(number != 0 && inode.type != FileType::None, file_storage);
  return {number, inode.size, inode.mtime_ns, inode.ctime_ns};
}

void put_wcc_data(xdr::Writer& out, FileSystem& fs, const WccBefore& before) noexcept {
  out.boolean(before.number != 0);
  if (before.number != 0) {
    out.u64(before.size);
    put_time(out, before.mtime_ns);
    put_time(out, before.ctime_ns);
  }
  put_post_op_attr(out, fs, before.number);
}

SetAttributes get_sattr3(xdr::Reader& in) noexcept {
  SetAttributes set;
  if (in.boolean()) set.mode = static_cast<std::uint16_t>(in.u32() & 07777);
  if (in.boolean()) set.uid = in.u32();
  if (in.boolean()) set.gid = in.u32();
  if (in.boolean()) set.size = in.u64();
  const auto time = [&](SetAttributes::Time& how, std::uint64_t& ns) {
    const std::uint32_t kind = in.u32();
    if (kind > static_cast<std::uint32_t>(SetAttributes::Time::Client)) return in.fail();
    how = static_cast<SetAttributes::Time>(kind);
    if (how == SetAttributes::Time::Client) ns = get_time(in);
  };
  time(set.atime, set.atime_ns);
  time(set.mtime, set.mtime_ns);
  return set;
}

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
