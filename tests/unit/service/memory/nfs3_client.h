// SPDX-License-Identifier: Apache-2.0
//
// An NFSv3 client for tests, written from RFC 1813 independently of the service's codec. It is strict: a
// reply that does not decode to its last byte fails the test.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "dataplane/service/memory/file_reader.h"
#include "dataplane/service/memory/memory_service.h"
#include "tests/unit/service/memory/call_harness.h"

namespace sluice::service::memory {
inline void PrintTo(Status status, std::ostream* out) {
  *out << "nfsstat3 " << static_cast<std::uint32_t>(status);
}
}  // namespace sluice::service::memory

namespace sluice::service::test {

using memory::ExportOptions;
using memory::FileType;
using memory::MemoryService;
using memory::MemoryServiceConfig;
using memory::Status;
using Handle = Bytes;

struct Attr {
  std::uint32_t type = 0, mode = 0, links = 0, uid = 0, gid = 0;
  std::uint64_t size = 0, used = 0;
  std::uint32_t major = 0, minor = 0;
  std::uint64_t fsid = 0, fileid = 0, atime = 0, mtime = 0, ctime = 0;
};
struct PreAttr {
  std::uint64_t size = 0, mtime = 0, ctime = 0;
};
struct Wcc {
  std::optional<PreAttr> before;
  std::optional<Attr> after;
};
struct DirEntry {
  std::uint64_t fileid = 0;
  std::string name;
  std::uint64_t cookie = 0;
  std::optional<Attr> attr;
  Handle handle;
};
struct AclEntry {
  std::uint32_t type = 0, id = 0, permissions = 0;
  bool operator==(const AclEntry&) const = default;
};

/// Union of the results of all procedures.
struct Result {
  rpc::AcceptStat accepted = rpc::AcceptStat::SystemErr;
  std::optional<rpc::AuthStat> denied;
  Status status = Status::ServerFault;
  std::optional<Attr> attr;      ///< attributes of the object
  std::optional<Attr> dir_attr;  ///< LOOKUP
  Handle handle;
  Wcc wcc, to_wcc;
  std::uint32_t count = 0, committed = 0, access = 0;
  bool eof = false;
  Bytes data;
  std::uint64_t verifier = 0;
  std::vector<DirEntry> entries;
  std::vector<std::uint64_t> numbers;  ///< fields of FSSTAT, FSINFO or PATHCONF, in order
  std::vector<AclEntry> acl;
  std::uint32_t acl_mask = 0, acl_count = 0;
  std::size_t reply_bytes = 0;

  bool ok() const { return accepted == rpc::AcceptStat::Success && !denied && status == Status::Ok; }
};

struct Set {
  std::optional<std::uint32_t> mode{}, uid{}, gid{};
  std::optional<std::uint64_t> size{};
  std::uint32_t atime_how = 0, mtime_how = 0;
  std::uint64_t atime = 0, mtime = 0;
};

/// Identity of the caller.
struct Caller {
  rpc::AuthFlavor flavor = rpc::AuthFlavor::Sys;
  std::uint32_t uid = 0, gid = 0;
  std::vector<std::uint32_t> gids{};
  PeerAddress peer = PeerAddress::from_ipv4(192, 0, 2, 1);
  HostName host{};
};
inline const Caller kRoot{};
inline const Caller kAlice{.uid = 1000, .gid = 1000};
inline const Caller kBob{.uid = 1001, .gid = 1001};

/// Test clock: advances by a microsecond with each reading.
std::uint64_t test_clock() noexcept;
void set_test_clock(std::uint64_t ns) noexcept;

Bytes bytes_of(std::string_view text);
std::string numbered(std::string_view prefix, std::uint64_t number);
Bytes pattern(std::size_t bytes, std::uint32_t seed);

class Transport;

/// A MemoryService with its memory. The default has one export without root squashing. Calls are made
/// directly to the service, or over RPC-over-RDMA if the program was started with --over, or by a reader of
/// another reactor if it was started with --by-reader.
class Lab {
 public:
  struct Options {
    std::size_t arena_bytes = 64 << 20;
    std::uint32_t max_files = 30000;
    std::vector<ExportOptions> exports = {ExportOptions{.path = "/a", .root_squash = false}};
    HashKey key = {std::byte{7}};
    std::uint32_t max_io_bytes = memory::kDefaultTransferBytes;
  };
  Lab() : Lab(Options{}) {}
  explicit Lab(Options options);
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  MemoryService& service() { return *service_; }
  /// Returns null unless the program was started with --by-reader.
  memory::FileReader* reader() { return reader_.get(); }
  /// Returns the service that gets the calls.
  Service& front() {
    if (front_ != nullptr) return *front_;
    return reader_ ? static_cast<Service&>(*reader_) : *service_;
  }
  /// Sets the service that gets the calls; null for the usual one.
  void set_front(Service* front) { front_ = front; }
  /// Returns a counter of an export, summed over the reactors.
  template <typename Get>
  std::uint64_t counted(std::size_t export_id, const Get& get) const {
    const std::uint64_t own = get(service_->statistics(export_id)).get();
    return own + (reader_ ? get(reader_->statistics(export_id)).get() : 0);
  }
  std::span<std::byte> arena() { return arena_.bytes; }
  /// Returns the bytes that files can use.
  std::uint64_t capacity() { return service_->file_system().blocks().capacity_bytes(); }
  rdma::Lkey arena_lkey() const { return arena_.lkey; }
  std::span<std::byte> zeros() { return zeros_.bytes; }
  Handle root(std::uint32_t export_id = 0);
  void settle() {
    constexpr int kIterations = 4;  // a grace period takes two of each reactor
    for (int idle = 0; idle < kIterations; ++idle) {
      if (service_->background(0)) idle = 0;
      if (reader_) reader_->background(0);
    }
  }
  /// Prepares a call of `caller` that is not released yet. `arguments` must stay valid.
  void prepare(TestCall& call, std::uint32_t procedure, const Caller& caller);

  /// Executes and releases a call. Returns the results in inline form.
  Result call(std::uint32_t procedure, const Bytes& arguments, const Caller& caller);
  Result acl_call(std::uint32_t procedure, const Bytes& arguments, const Caller& caller);

  Result getattr(const Handle& object, const Caller& who = kRoot);
  Result setattr(const Handle& object, const Set& set, const Caller& who = kRoot,
                 std::optional<std::uint64_t> guard_ctime = {});
  Result lookup(const Handle& dir, std::string_view name, const Caller& who = kRoot);
  Result access(const Handle& object, std::uint32_t bits, const Caller& who = kRoot);
  Result readlink(const Handle& link, const Caller& who = kRoot);
  Result read(const Handle& file, std::uint64_t offset, std::uint32_t count, const Caller& who = kRoot);
  Result write(const Handle& file, std::uint64_t offset, const Bytes& data, const Caller& who = kRoot,
               std::uint32_t stable = 0);
  Result create(const Handle& dir, std::string_view name, const Set& set = {}, const Caller& who = kRoot,
                bool guarded = false);
  Result create_exclusive(const Handle& dir, std::string_view name, std::uint64_t verifier,
                          const Caller& who = kRoot);
  Result mkdir(const Handle& dir, std::string_view name, const Set& set = {}, const Caller& who = kRoot);
  Result symlink(const Handle& dir, std::string_view name, std::string_view path, const Caller& who = kRoot);
  Result mknod(const Handle& dir, std::string_view name, std::uint32_t type, const Caller& who = kRoot,
               const Set& set = {}, std::uint32_t major = 0, std::uint32_t minor = 0);
  Result remove(const Handle& dir, std::string_view name, const Caller& who = kRoot);
  Result rmdir(const Handle& dir, std::string_view name, const Caller& who = kRoot);
  Result rename(const Handle& from, std::string_view from_name, const Handle& to, std::string_view to_name,
                const Caller& who = kRoot);
  Result link(const Handle& file, const Handle& dir, std::string_view name, const Caller& who = kRoot);
  Result readdir(const Handle& dir, std::uint64_t cookie, std::uint64_t verifier, std::uint32_t count,
                 const Caller& who = kRoot);
  Result readdirplus(const Handle& dir, std::uint64_t cookie, std::uint64_t verifier, std::uint32_t dircount,
                     std::uint32_t maxcount, const Caller& who = kRoot);
  Result fsstat(const Handle& object, const Caller& who = kRoot);
  Result fsinfo(const Handle& object, const Caller& who = kRoot);
  Result pathconf(const Handle& object, const Caller& who = kRoot);
  Result commit(const Handle& file, const Caller& who = kRoot);
  Result getacl(const Handle& object, std::uint32_t mask, const Caller& who = kRoot);
  Result setacl(const Handle& object, std::uint32_t mask, const std::vector<AclEntry>& acl,
                const std::vector<AclEntry>& default_acl, const Caller& who = kRoot);

  /// Creates a file or directory as root and returns its handle.
  Handle file(const Handle& dir, std::string_view name, std::uint32_t mode = 0644);
  Handle directory(const Handle& dir, std::string_view name, std::uint32_t mode = 0755);
  /// Returns a whole directory, read by READDIR calls of `count` bytes, without "." and "..".
  std::vector<DirEntry> list(const Handle& dir, std::uint32_t count = 8192);
  Bytes read_all(const Handle& file);

 private:
  Result run(Service& service, std::uint32_t program, std::uint32_t procedure, const Bytes& arguments,
             const Caller& caller);

  std::unique_ptr<Transport> transport_;  ///< null: calls are made directly to the service
  rdma::MemoryRegion arena_;
  rdma::MemoryRegion zeros_;
  std::unique_ptr<MemoryService> service_;
  std::unique_ptr<memory::FileReader> reader_;
  Service* front_ = nullptr;
  std::array<std::byte, 400> credential_{};
};

/// Selects the version of RPC-over-RDMA for Labs created later; zero selects direct calls to the service.
void call_over_version(std::uint32_t version) noexcept;
/// Lets a reader answer the calls of Labs created later, as on a reactor that does not own the files.
void call_by_reader() noexcept;

/// Returns the arguments of a WRITE up to its data, which a Read chunk contains.
Bytes write_head(const Handle& file, std::uint64_t offset, std::uint32_t count, std::uint32_t stable = 0);
/// Returns the output of `put`.
Bytes encode(const std::function<void(xdr::Writer&)>& put);
/// Decodes results of an NFSv3 procedure.
Result decode(std::uint32_t procedure, const Bytes& results);

}  // namespace sluice::service::test
