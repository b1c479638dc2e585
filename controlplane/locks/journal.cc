// SPDX-License-Identifier: Apache-2.0
#include "controlplane/locks/journal.h"

#include <fcntl.h>
#include <isa-l/crc.h>
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "dataplane/base/setup_error.h"
#include "dataplane/log/log.h"

namespace sluice::locks {
namespace {

constexpr std::size_t kMaxRecordBytes = 4096;
constexpr std::size_t kHeadBytes = 2 * xdr::kUnit;
/// First bytes of the file. A file with other content is never overwritten.
constexpr std::string_view kMagic = "sluice locks 1\n\n";

std::uint32_t crc32(std::span<const std::byte> bytes) {
  return crc32_gzip_refl(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

Bytes read_all(int fd) {
  struct stat status {};
  ::fstat(fd, &status);
  Bytes bytes(static_cast<std::size_t>(status.st_size));
  const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

PeerAddress address(xdr::Reader& reader) {
  PeerAddress result;
  const auto bytes = reader.opaque_fixed(static_cast<std::uint32_t>(result.bytes.size()));
  if (reader.ok()) std::memcpy(result.bytes.data(), bytes.data(), bytes.size());
  return result;
}

/// Writes the zones of addresses as the names of interfaces, because their indices differ after a restart of
/// the machine.
void write_zones(xdr::Writer& writer, const PeerAddress& address, const PeerAddress& local) {
  for (const std::uint32_t zone : {address.zone, local.zone}) {
    char name[IF_NAMESIZE];
    writer.string(zone != 0 && ::if_indextoname(zone, name) != nullptr ? name : "");
  }
}

/// Reads the zones of a record's addresses, which are at its end. A zone is zero if its interface no longer
/// exists. Records of earlier versions have no zones.
void read_zones(xdr::Reader& reader, PeerAddress& address, PeerAddress& local) {
  if (!reader.ok() || reader.remaining() == 0) return;
  address.zone = ::if_nametoindex(std::string(reader.string(IF_NAMESIZE)).c_str());
  local.zone = ::if_nametoindex(std::string(reader.string(IF_NAMESIZE)).c_str());
}

Bytes copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Journal::Journal(std::string path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0600)) {
  const auto refuse = [&](const std::string& why) {
    throw SetupError("Cannot record locks in " + path_ + " (" + why +
                     "). Set locks.state to a file that the control plane may write, or to \"\".");
  };
  if (fd_ < 0) refuse(std::strerror(errno));
  const Bytes bytes = read_all(fd_);
  const auto magic = std::as_bytes(std::span{kMagic});
  // A power failure can truncate the file within these bytes.
  if (!std::equal(bytes.begin(),
                  bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), magic.size())),
                  magic.begin())) {
    ::close(fd_);
    refuse("it is not a file of locks");
  }
}

Journal::~Journal() {
  ::close(fd_);
}

template <typename Encode>
void Journal::append(Kind kind, const Encode& encode) {
  if (quiet_ || broken_) return;
  std::array<std::byte, kMaxRecordBytes> room;
  xdr::Writer writer(room);
  writer.words(0, 0, kind);
  encode(writer);
  const auto content = writer.written().subspan(kHeadBytes);
  xdr::store_u32(room.data(), static_cast<std::uint32_t>(content.size()));
  xdr::store_u32(room.data() + xdr::kUnit, crc32(content));
  unwritten_.insert(unwritten_.end(), writer.written().begin(), writer.written().end());
  if (kind == kOwner) return;
  const Bytes records = std::exchange(unwritten_, {});
  if (!write_all(fd_, records)) return failed("is not complete");
  bytes_ += records.size();
}

void Journal::owner(const Owner& owner) {
  append(kOwner, [&](xdr::Writer& writer) {
    writer.words(owner.id, owner.name.svid, owner.state, owner.flavor);
    writer.opaque_fixed(std::as_bytes(std::span{owner.name.host.address.bytes}));
    writer.opaque_fixed(std::as_bytes(std::span{owner.local.bytes}));
    writer.string(owner.name.host.name);
    writer.opaque(owner.name.owner);
    writer.opaque(owner.credential);
    write_zones(writer, owner.name.host.address, owner.local);
  });
}

void Journal::range_record(Kind kind, std::uint32_t id, const Bytes& handle, const Range& range) {
  append(kind, [&](xdr::Writer& writer) {
    writer.u32(id);
    writer.opaque(handle);
    writer.u64(range.first);
    writer.u64(range.last);
    writer.boolean(range.exclusive);
  });
}

void Journal::asked(std::uint32_t id, const Bytes& handle, const Range& range) {
  range_record(kAsked, id, handle, range);
}

void Journal::not_granted(std::uint32_t id, const Bytes& handle, const Range& range) {
  range_record(kNotGranted, id, handle, range);
}

void Journal::held(std::uint32_t id, const Bytes& handle, const Range& range) {
  range_record(kHeld, id, handle, range);
}

void Journal::freed(std::uint32_t id, const Bytes& handle, const Range& range) {
  range_record(kFreed, id, handle, range);
}

void Journal::leaving(std::uint32_t id) {
  append(kLeaving, [&](xdr::Writer& writer) { writer.u32(id); });
}

void Journal::notice(const NoticeTo& to, std::uint32_t state) {
  append(kNotice, [&](xdr::Writer& writer) {
    writer.u32(state);
    writer.opaque_fixed(std::as_bytes(std::span{to.address.bytes}));
    writer.opaque_fixed(std::as_bytes(std::span{to.local.bytes}));
    write_zones(writer, to.address, to.local);
  });
}

/// Replays an owner. Returns false if the record is malformed.
bool Journal::replay_owner(Table& table, std::uint32_t id, xdr::Reader& record) {
  Owner owner;
  owner.id = id;
  owner.name.svid = record.u32();
  owner.state = record.u32();
  owner.flavor = static_cast<rpc::AuthFlavor>(record.u32());
  owner.name.host.address = address(record);
  owner.local = address(record);
  owner.name.host.name = record.string(kMaxString);
  owner.name.owner = copy(record.opaque(kMaxString));
  owner.credential = copy(record.opaque(rpc::kMaxAuthBytes));
  read_zones(record, owner.name.host.address, owner.local);
  owner.recorded = true;
  if (!record.ok()) return false;
  Owner* const known = table.by_id(id);
  if (known == nullptr) {
    table.restore(std::move(owner));
  } else {
    known->state = owner.state;
    known->local = owner.local;
    known->flavor = owner.flavor;
    known->credential = owner.credential;
  }
  return true;
}

/// Replays a change of a range. Returns false if the record is malformed.
bool Journal::replay_range(Table& table, Kind kind, Owner& owner, xdr::Reader& record) {
  const Bytes handle = copy(record.opaque(kMaxHandle));
  Range range;
  range.first = record.u64();
  range.last = record.u64();
  range.exclusive = record.boolean();
  if (!record.ok() || range.first > range.last) return false;
  switch (kind) {
    case kAsked:
      return table.ask(owner, handle, range), true;
    case kNotGranted:
      return table.not_granted(owner, handle, range), true;
    case kHeld:
      return table.hold(owner, handle, range), true;
    case kFreed:
      return table.free(owner, handle, range), true;
    default:
      return false;
  }
}

/// Replays any record. Returns false if it is malformed.
bool Journal::replay(Table& table, xdr::Reader record) {
  const auto kind = static_cast<Kind>(record.u32());
  const std::uint32_t id = record.u32();
  if (kind == kOwner) return replay_owner(table, id, record);
  if (kind == kNotice) {
    NoticeTo to;
    to.address = address(record);
    to.local = address(record);
    read_zones(record, to.address, to.local);
    if (record.ok()) table.set_notice(to, id);
    return record.ok();
  }
  Owner* const owner = table.by_id(id);
  if (!record.ok() || owner == nullptr) return false;
  if (kind == kLeaving) return table.leave(*owner), true;
  return replay_range(table, kind, *owner, record);
}

void Journal::load(Table& table) {
  const Bytes bytes = read_all(fd_);
  std::size_t at = std::min(bytes.size(), kMagic.size());
  bool sound = true;
  quiet_ = true;
  while (sound && at + kHeadBytes <= bytes.size()) {
    const std::size_t length = xdr::load_u32(bytes.data() + at);
    sound = length <= kMaxRecordBytes;
    if (!sound || at + kHeadBytes + length > bytes.size()) break;
    const auto content = std::span(bytes).subspan(at + kHeadBytes, length);
    sound = crc32(content) == xdr::load_u32(bytes.data() + at + xdr::kUnit) &&
            replay(table, xdr::Reader(content));
    if (sound) at += kHeadBytes + length;
  }
  quiet_ = false;
  table.restored();
  if (!sound)
    log::warn(
        "{} is damaged at byte {} of {}. Locks that clients acquired after this point are unknown, and are "
        "not released when such a client restarts. If a lock remains at the upstream, restart the upstream's "
        "lock manager",
        path_, at, bytes.size());
  std::size_t locks = 0;
  for (const auto& [id, owner] : table.owners())
    for (const auto& [handle, ranges] : owner.files) locks += ranges.all().size();
  if (locks > 0)
    log::info("{} locks of {} owners were restored from {}", locks, table.owners().size(), path_);
  rewrite(table);
}

/// Writes the table to a new file, which then replaces the old one.
void Journal::rewrite(const Table& table) {
  const std::string fresh = path_ + ".new";
  const int old = fd_;
  fd_ = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0600);
  if (fd_ < 0) {
    fd_ = old;
    return failed("cannot be replaced");
  }
  broken_ = false;
  unwritten_.clear();
  bytes_ = kMagic.size();
  if (!write_all(fd_, std::as_bytes(std::span{kMagic}))) broken_ = true;
  for (const auto& [id, known] : table.owners()) {
    if (known.empty()) continue;
    owner(known);
    // Held ranges come first, because held() also completes a LOCK.
    for (const auto& [handle, ranges] : known.files)
      for (const Range& range : ranges.all()) held(id, handle, range);
    for (const AskedLock& lock : known.asked) asked(id, lock.handle, lock.range);
    if (known.leaving) leaving(id);
  }
  for (const auto& [to, state] : table.notices()) notice(to, state);
  if (broken_ || ::rename(fresh.c_str(), path_.c_str()) != 0) {
    ::close(std::exchange(fd_, old));
    return failed("cannot be replaced");
  }
  ::close(old);
  snapshot_bytes_ = bytes_;
}

void Journal::failed(const char* what) {
  const int error = errno;
  if (!std::exchange(broken_, true))
    log::error("{} {} ({}). A restart of the control plane would lose all locks", path_, what,
               std::strerror(error));
}

void Journal::maintain(const Table& table, std::uint64_t now_ns) {
  const bool long_enough = bytes_ >= kCompactBytes && bytes_ >= 2 * snapshot_bytes_;
  if ((!long_enough && !broken_) || now_ns < again_ns_) return;
  again_ns_ = now_ns + kWriteAgainNs;
  const bool was_broken = broken_;
  rewrite(table);
  if (was_broken && !broken_) log::info("Locks are recorded in {} again", path_);
}

}  // namespace sluice::locks
