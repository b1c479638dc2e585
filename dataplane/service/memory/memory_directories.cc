// SPDX-License-Identifier: Apache-2.0
//
// Procedures on directory entries.
#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/service/memory/memory_service.h"

#include "dataplane/base/small_algorithms.h"

namespace sluice::service::memory {
namespace {

constexpr std::uint64_t kDotCookie = 1;
constexpr std::uint64_t kDotDotCookie = 2;
static_assert(kDotDotCookie < kFirstCookie);

Status check_path(std::string_view path) noexcept {
  if (path.size() > kMaxSymlinkBytes) return Status::NameTooLong;
  return path.empty() || path.find('\0') != std::string_view::npos ? Status::Inval : Status::Ok;
}

}  // namespace

/// Checks if the caller may add or remove an entry `name` in `directory`.
Status MemoryService::may_change_directory(const Target& directory, std::string_view name) const noexcept {
  const Inode& inode = fs_.inode(directory.number);
  if (inode.type != FileType::Directory) return Status::NotDir;
  if (directory.options->read_only) return Status::RoFs;
  if (const Status status = check_name(name); status != Status::Ok) return status;
  return allows(inode, directory.credential, kWrite | kExecute) ? Status::Ok : Status::Acces;
}

/// Returns true if the directory has an entry of this name.
bool MemoryService::is_taken(const Target& directory, std::string_view name) const noexcept {
  return is_dot(name) || fs_.lookup(directory.number, name) != 0;
}

/// Checks if the caller may add the entry `name`, which must not exist, to `directory`.
Status MemoryService::may_add(const Target& directory, std::string_view name) const noexcept {
  const Status status = may_change_directory(directory, name);
  return status == Status::Ok && is_taken(directory, name) ? Status::Exist : status;
}

/// If the sticky bit is set, only the owners of the entry and of the directory may remove it.
Status MemoryService::may_remove(const Target& directory, const Inode& victim) const noexcept {
  const Inode& parent = fs_.inode(directory.number);
  const bool restricted = (parent.mode & kSticky) != 0 && !owns(parent, directory.credential);
  return restricted && !owns(victim, directory.credential) ? Status::Acces : Status::Ok;
}

// --- Creating ------------------------------------------------------------------------------------

void MemoryService::end_create(Call& call, Status status, InodeNumber made,
                               const WccBefore& before) noexcept {
  xdr::Writer& out = call.results();
  put_status(out, status);
  if (status == Status::Ok) {
    put_post_op_fh3(out, fs_, made);
    put_post_op_attr(out, fs_, made);
  }
  put_wcc_data(out, fs_, before);
  succeed(call, status);
}

/// Creates an object with the requested attributes, as far as the caller may set them. A directory with the
/// set-group-id bit passes its group on. It passes the bit on to directories. Other objects can have the
/// bit only if the caller is in their group.
FileSystem::Found MemoryService::make(const Target& directory, std::string_view name, NewInode what,
                                      const SetAttributes& set) noexcept {
  const Inode& parent = fs_.inode(directory.number);
  const Credential& who = directory.credential;
  const bool inherits = (parent.mode & kSetGid) != 0;
  what.uid = who.uid == 0 ? set.uid.value_or(0) : who.uid;
  what.gid = inherits ? parent.gid : who.gid;
  if (set.gid && (who.uid == 0 || in_group(who, *set.gid))) what.gid = *set.gid;
  if (set.mode && what.type != FileType::Symlink) what.mode = *set.mode;
  if (who.uid != 0 && !in_group(who, what.gid)) what.mode &= static_cast<std::uint16_t>(~kSetGid);
  if (inherits && what.type == FileType::Directory) what.mode |= kSetGid;
  SLUICE_INVARIANT_DEBUG(directory.status == Status::Ok && parent.type == FileType::Directory, file_storage);
  const FileSystem::Found made = fs_.create(directory.number, name, what);
  if (made.status != Status::Ok) return made;
  Inode& inode = fs_.change(made.number);
  if (set.atime == SetAttributes::Time::Client) inode.atime_ns = set.atime_ns;
  if (set.mtime == SetAttributes::Time::Client) inode.mtime_ns = set.mtime_ns;
  return made;
}

void MemoryService::create(Call& call, xdr::Reader& in) noexcept {
  enum : std::uint32_t { kUnchecked = 0, kGuarded = 1, kExclusive = 2 };
  const auto handle = in.opaque(kMaxNfsHandle);
  const std::string_view name = in.string(kMaxNameOnWire);
  const std::uint32_t how = in.u32();
  SetAttributes set;
  std::uint64_t verifier = 0;
  if (how == kExclusive)
    verifier = in.u64();
  else if (how <= kGuarded)
    set = get_sattr3(in);
  else
    in.fail();
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);

  const Target directory = target(call, handle);
  if (directory.status != Status::Ok) return end_create(call, directory.status, 0, {});
  const WccBefore before = wcc_before(fs_, directory.number);
  Status status = may_search(fs_.inode(directory.number), directory.credential, name);
  if (status == Status::Ok && is_dot(name)) status = Status::Exist;
  if (status == Status::Ok && set.size && *set.size > kMaxFileBytes) status = Status::FBig;
  if (status != Status::Ok) return end_create(call, status, 0, before);

  if (const EntryNumber existing = fs_.lookup(directory.number, name); existing != 0) {
    const InodeNumber number = fs_.entry(existing).inode.own();
    const Inode& inode = fs_.inode(number);
    const bool regular = inode.type == FileType::Regular;
    const bool replay = how == kExclusive && inode.exclusive && inode.create_verifier == verifier;
    if (!regular || (how != kUnchecked && !replay)) return end_create(call, Status::Exist, 0, before);
    if (how == kUnchecked && set.size) {
      Target file = directory;
      file.number = number;
      status = set_attributes(file, {.size = set.size});
    } else {
      effect_ = DuplicateRequestCache::Effect::None;
    }
    return end_create(call, status, number, before);
  }

  status = may_change_directory(directory, name);
  if (status != Status::Ok) return end_create(call, status, 0, before);
  // After an exclusive CREATE the client sets the attributes; until then no other user may open the file.
  const std::uint16_t mode = how == kExclusive ? 0600 : 0644;
  const FileSystem::Found made = make(directory, name, {.type = FileType::Regular, .mode = mode}, set);
  if (made.status == Status::Ok) {
    Inode& inode = fs_.change(made.number);
    inode.exclusive = how == kExclusive;
    inode.create_verifier = verifier;
    if (set.size) static_cast<void>(fs_.truncate(made.number, *set.size));  // cannot fail: it only grows
  }
  end_create(call, made.status, made.number, before);
}

void MemoryService::mkdir(Call& call, xdr::Reader& in) noexcept {
  const auto handle = in.opaque(kMaxNfsHandle);
  const std::string_view name = in.string(kMaxNameOnWire);
  const SetAttributes set = get_sattr3(in);
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target directory = target(call, handle);
  if (directory.status != Status::Ok) return end_create(call, directory.status, 0, {});
  const WccBefore before = wcc_before(fs_, directory.number);
  Status status = may_add(directory, name);
  if (status == Status::Ok && fs_.inode(directory.number).links >= kMaxLinks) status = Status::MLink;
  if (status != Status::Ok) return end_create(call, status, 0, before);
  const FileSystem::Found made = make(directory, name, {.type = FileType::Directory, .mode = 0755}, set);
  end_create(call, made.status, made.number, before);
}

void MemoryService::symlink(Call& call, xdr::Reader& in) noexcept {
  const auto handle = in.opaque(kMaxNfsHandle);
  const std::string_view name = in.string(kMaxNameOnWire);
  const SetAttributes set = get_sattr3(in);
  const std::string_view path = in.string(kMaxNameOnWire);
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target directory = target(call, handle);
  if (directory.status != Status::Ok) return end_create(call, directory.status, 0, {});
  const WccBefore before = wcc_before(fs_, directory.number);
  Status status = may_add(directory, name);
  if (status == Status::Ok) status = check_path(path);
  if (status != Status::Ok) return end_create(call, status, 0, before);
  const FileSystem::Found made = make(directory, name, {.type = FileType::Symlink, .mode = 0777}, set);
  if (made.status != Status::Ok) return end_create(call, made.status, 0, before);
  Inode& inode = fs_.change(made.number);
  status = fs_.ensure_blocks(made.number, 0, static_cast<std::uint32_t>(path.size()));
  if (status != Status::Ok) {
    fs_.remove_entry(fs_.lookup(directory.number, name));
    return end_create(call, status, 0, before);
  }
  SLUICE_INVARIANT_DEBUG(inode.small && path.size() <= kSmallBytes, buffer_bounds);
  std::memcpy(fs_.blocks().data(fs_.block_of(inode, 0)), path.data(), path.size());
  inode.size = path.size();
  end_create(call, Status::Ok, made.number, before);
}

void MemoryService::mknod(Call& call, xdr::Reader& in) noexcept {
  const auto handle = in.opaque(kMaxNfsHandle);
  const std::string_view name = in.string(kMaxNameOnWire);
  const auto type = static_cast<FileType>(smaller_of(in.u32(), 255u));
  SetAttributes set;
  NewInode what{.type = type};
  const bool device = type == FileType::BlockDevice || type == FileType::CharDevice;
  const bool special = device || type == FileType::Socket || type == FileType::Fifo;
  if (special) set = get_sattr3(in);
  if (device) {
    what.device_major = in.u32();
    what.device_minor = in.u32();
  }
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target directory = target(call, handle);
  if (directory.status != Status::Ok) return end_create(call, directory.status, 0, {});
  const WccBefore before = wcc_before(fs_, directory.number);
  Status status = special ? may_change_directory(directory, name) : Status::BadType;
  if (status == Status::Ok && device && directory.credential.uid != 0) status = Status::Perm;
  if (status == Status::Ok && is_taken(directory, name)) status = Status::Exist;
  if (status != Status::Ok) return end_create(call, status, 0, before);
  const FileSystem::Found made = make(directory, name, what, set);
  end_create(call, made.status, made.number, before);
}

void MemoryService::link(Call& call, xdr::Reader& in) noexcept {
  const auto file_handle = in.opaque(kMaxNfsHandle);
  const auto directory_handle = in.opaque(kMaxNfsHandle);
  const std::string_view name = in.string(kMaxNameOnWire);
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target file = target(call, file_handle);
  const Target directory = target(call, directory_handle);
  WccBefore before;
  Status status = file.status != Status::Ok ? file.status : directory.status;
  if (directory.status == Status::Ok) before = wcc_before(fs_, directory.number);
  if (status == Status::Ok) status = may_change_directory(directory, name);
  if (status == Status::Ok && fs_.inode(file.number).export_id != fs_.inode(directory.number).export_id)
    status = Status::XDev;
  if (status == Status::Ok && fs_.inode(file.number).type == FileType::Directory) status = Status::Inval;
  if (status == Status::Ok && is_taken(directory, name)) status = Status::Exist;
  if (status == Status::Ok) status = fs_.link(directory.number, name, file.number);
  put_status(call.results(), status);
  put_post_op_attr(call.results(), fs_, file.number);
  put_wcc_data(call.results(), fs_, before);
  succeed(call, status);
}

// --- Removing and renaming -----------------------------------------------------------------------

void MemoryService::end_removal(Call& call, xdr::Reader& in, bool want_directory) noexcept {
  const auto handle = in.opaque(kMaxNfsHandle);
  const std::string_view name = in.string(kMaxNameOnWire);
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target directory = target(call, handle);
  if (directory.status != Status::Ok) return end_with_wcc(call, directory.status, {});
  const WccBefore before = wcc_before(fs_, directory.number);
  Status status = may_change_directory(directory, name);
  if (status == Status::Ok && is_dot(name)) status = name == "." ? Status::Inval : Status::Exist;
  if (status != Status::Ok) return end_with_wcc(call, status, before);
  const EntryNumber entry = fs_.lookup(directory.number, name);
  if (entry == 0) return end_with_wcc(call, Status::NoEnt, before);
  const Inode& victim = fs_.inode(fs_.entry(entry).inode.own());
  const bool is_directory = victim.type == FileType::Directory;
  if (want_directory && !is_directory)
    status = Status::NotDir;
  else if (!want_directory && is_directory)
    status = Status::IsDir;
  else if (is_directory && victim.entries > 0)
    status = Status::NotEmpty;
  else
    status = may_remove(directory, victim);
  if (status == Status::Ok) fs_.remove_entry(entry);
  end_with_wcc(call, status, before);
}

void MemoryService::remove(Call& call, xdr::Reader& in) noexcept {
  end_removal(call, in, false);
}
void MemoryService::rmdir(Call& call, xdr::Reader& in) noexcept {
  end_removal(call, in, true);
}

void MemoryService::rename(Call& call, xdr::Reader& in) noexcept {
  const auto from_handle = in.opaque(kMaxNfsHandle);
  const std::string_view from_name = in.string(kMaxNameOnWire);
  const auto to_handle = in.opaque(kMaxNfsHandle);
  const std::string_view to_name = in.string(kMaxNameOnWire);
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target from = target(call, from_handle);
  const Target to = target(call, to_handle);
  WccBefore before_from;
  WccBefore before_to;
  if (from.status == Status::Ok) before_from = wcc_before(fs_, from.number);
  if (to.status == Status::Ok) before_to = wcc_before(fs_, to.number);

  const auto attempt = [&]() -> Status {
    if (from.status != Status::Ok) return from.status;
    if (to.status != Status::Ok) return to.status;
    if (fs_.inode(from.number).export_id != fs_.inode(to.number).export_id) return Status::XDev;
    if (const Status status = may_change_directory(from, from_name); status != Status::Ok) return status;
    if (const Status status = may_change_directory(to, to_name); status != Status::Ok) return status;
    if (is_dot(from_name) || is_dot(to_name)) return Status::Inval;
    const EntryNumber entry = fs_.lookup(from.number, from_name);
    if (entry == 0) return Status::NoEnt;
    const InodeNumber moved = fs_.entry(entry).inode.own();
    const Inode& inode = fs_.inode(moved);
    const bool directory = inode.type == FileType::Directory;
    if (const Status status = may_remove(from, inode); status != Status::Ok) return status;
    const bool moves_directory = directory && from.number != to.number;
    if (moves_directory && !allows(inode, from.credential, kWrite)) return Status::Acces;  // its ".." changes
    if (directory && fs_.is_within(to.number, moved)) return Status::Inval;
    if (const EntryNumber existing = fs_.lookup(to.number, to_name); existing != 0) {
      if (fs_.entry(existing).inode.own() == moved) {  // links to one file
        effect_ = DuplicateRequestCache::Effect::None;
        return Status::Ok;
      }
      const Inode& victim = fs_.inode(fs_.entry(existing).inode.own());
      if (directory != (victim.type == FileType::Directory)) return Status::Exist;
      if (directory && victim.entries > 0) return Status::NotEmpty;
      if (const Status status = may_remove(to, victim); status != Status::Ok) return status;
    } else if (moves_directory && fs_.inode(to.number).links >= kMaxLinks) {
      return Status::MLink;
    }
    fs_.rename(entry, to.number, to_name);
    return Status::Ok;
  };
  const Status status = attempt();
  put_status(call.results(), status);
  put_wcc_data(call.results(), fs_, before_from);
  put_wcc_data(call.results(), fs_, before_to);
  succeed(call, status);
}

// --- Listing -------------------------------------------------------------------------------------

void MemoryService::readdir(Call& call, xdr::Reader& in) noexcept {
  list_directory(call, in, false);
}
void MemoryService::readdirplus(Call& call, xdr::Reader& in) noexcept {
  list_directory(call, in, true);
}

/// Lists entries in order of creation. The client's cookie refers to the last entry returned, which may have
/// been removed since.
void MemoryService::list_directory(Call& call, xdr::Reader& in, bool plus) noexcept {
  constexpr std::uint32_t kEntryBytes = 4 + 8 + 4 + 8;         // follows, fileid, name length, cookie
  constexpr std::uint32_t kPlusBytes = 88 + 8 + kHandleBytes;  // post_op_attr, post_op_fh3
  constexpr std::uint32_t kEndBytes = 8;                       // no entry follows, eof
  const auto handle = in.opaque(kMaxNfsHandle);
  const std::uint64_t cookie = in.u64();
  const std::uint64_t cookie_verifier = in.u64();
  std::uint32_t names_left = plus ? in.u32() : kMaxReaddirBytes;
  std::uint32_t left = smaller_of(in.u32(), kMaxReaddirBytes);
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target directory = target(call, handle);
  if (directory.status != Status::Ok) return end_with_attr(call, directory.status, 0);
  const Inode& inode = fs_.inode(directory.number);
  if (inode.type != FileType::Directory) return end_with_attr(call, Status::NotDir, directory.number);
  if (!allows(inode, directory.credential, kRead))
    return end_with_attr(call, Status::Acces, directory.number);

  // Cookies do not survive a restart of the file system, but the handle of a root does.
  if (cookie != 0 && cookie_verifier != fs_.start())
    return end_with_attr(call, Status::BadCookie, directory.number);

  xdr::Writer& out = call.results();
  put_status(out, Status::Ok);
  put_post_op_attr(out, fs_, directory.number);
  out.u64(fs_.start());
  const auto head = static_cast<std::uint32_t>(out.position()) - 4 + kEndBytes;
  left = smaller_of<std::uint32_t>(left, static_cast<std::uint32_t>(out.position() + out.remaining()) - 4);
  left = left > head ? left - head : 0;
  bool any = false;
  const auto put = [&](std::string_view name, InodeNumber number, std::uint64_t its_cookie) {
    const auto name_bytes = static_cast<std::uint32_t>(kEntryBytes + xdr::padded(name.size()));
    const std::uint32_t bytes = name_bytes + (plus ? kPlusBytes : 0);
    // dircount is a hint: the first entry is returned in any case.
    if (bytes > left || (any && name_bytes > names_left)) return false;
    left -= bytes;
    names_left -= smaller_of(names_left, name_bytes);
    out.boolean(true);
    out.u64(number);
    out.string(name);
    out.u64(its_cookie);
    if (plus) {
      put_post_op_attr(out, fs_, number);
      put_post_op_fh3(out, fs_, number);
    }
    return any = true;
  };
  bool room = cookie >= kDotCookie || put(".", directory.number, kDotCookie);
  room = room && (cookie >= kDotDotCookie || put("..", inode.parent, kDotDotCookie));
  EntryNumber at = fs_.entry_after(directory.number, cookie <= kDotDotCookie ? 0 : cookie);
  for (; room && at != 0; at = fs_.entry_next(at)) {
    const Entry& entry = fs_.entry(at);
    room = put(entry.name_view(), entry.inode.own(), entry.cookie());
  }
  if (!any && !room) {
    out.rewind(0);
    return end_with_attr(call, Status::TooSmall, directory.number);
  }
  if (const std::uint64_t now_ns = fs_.now_ns(); needs_access_time(inode, now_ns))
    fs_.change(directory.number).atime_ns = now_ns;
  out.boolean(false);
  out.boolean(room);  // eof
  succeed(call, Status::Ok);
}

}  // namespace sluice::service::memory
