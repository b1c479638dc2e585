// SPDX-License-Identifier: Apache-2.0
//
// Procedures of NFS version 3 that change nothing but the access time: GETATTR, LOOKUP, ACCESS, READLINK,
// READ, FSINFO, PATHCONF and COMMIT (RFC 1813, section 3.3). They are written once, for the owner of the
// files and for the reactors that only read them.
//
// `Files` says where attributes come from. The owner has its own inodes. A reader has copies of published
// ones, and whatever it cannot read consistently it leaves to the owner: a function that returns false has
// changed nothing.
//
//   struct Object             an inode number with its attributes(), valid while the object exists
//   load(number, object)      reads an inode
//   confirm(object)           returns whether the inode is still what load() has read
//   root(export, root)        reads the root of an export
//   applies(export, root)     returns whether the list of exports is that of the root
//   lookup(directory, name, object)
//   note_read(object)         sets the access time
//   pin(call, object, offset, bytes) and pinned(call), for the blocks of a transfer
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/api/service.h"
#include "dataplane/service/memory/exports.h"
#include "dataplane/service/memory/wire.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::service::memory {

/// Data of one reactor that the procedures need besides the files.
struct ReadContext {
  const FileSystem& fs;  ///< its functions for readers, and constants
  const std::vector<ExportOptions>& exports;
  std::span<ExportStatistics> statistics;  ///< kMaxExports + 1
  std::uint32_t max_io_bytes = 0;
  std::span<const std::byte, 8> write_verifier;
  std::span<std::byte> data;  ///< region of all blocks
  rdma::Lkey data_lkey{};
  rdma::MemoryRegion zeros{};  ///< kLargeBytes that holes are read from
};

/// Returns true if the access time must be set, by the rule that Linux calls relatime: it is not after the
/// last change, or it is old. A file that is read often is thus changed rarely. Times in the future, which a
/// client can set, do not count.
inline bool needs_access_time(const FileAttributes& file, std::uint64_t now_ns) noexcept {
  constexpr std::uint64_t kMaxAgeNs = 3600 * kNsPerSecond;
  if (file.atime_ns >= now_ns) return false;
  const std::uint64_t changed_ns = larger_of(file.mtime_ns, file.ctime_ns);
  return (file.atime_ns <= changed_ns && changed_ns < now_ns) || now_ns - file.atime_ns > kMaxAgeNs;
}

/// Returns whether ReadProcedures has the procedure.
constexpr bool changes_nothing(std::uint32_t procedure) noexcept {
  constexpr std::uint32_t kAll = 1u << ulb::kNfs3GetAttr | 1u << ulb::kNfs3Lookup | 1u << ulb::kNfs3Access |
                                 1u << ulb::kNfs3ReadLink | 1u << ulb::kNfs3Read | 1u << ulb::kNfs3FsInfo |
                                 1u << ulb::kNfs3PathConf | 1u << ulb::kNfs3Commit;
  return procedure < ulb::kNfs3Procedures && (kAll >> procedure & 1) != 0;
}

template <typename Files>
class ReadProcedures {
 public:
  ReadProcedures(Files& files, const ReadContext& context, Call& call) noexcept
      : files_(files), context_(context), call_(call) {}

  /// Executes one of the procedures, whose credential is served. Returns false if the owner has to execute
  /// it.
  [[nodiscard]] bool execute() noexcept {
    xdr::Reader in(call_.arguments());
    switch (call_.header().procedure) {
      case ulb::kNfs3GetAttr:
        return getattr(in);
      case ulb::kNfs3Lookup:
        return lookup(in);
      case ulb::kNfs3Access:
        return access(in);
      case ulb::kNfs3ReadLink:
        return readlink(in);
      case ulb::kNfs3Read:
        return read(in);
      case ulb::kNfs3FsInfo:
        return fsinfo(in);
      case ulb::kNfs3PathConf:
        return pathconf(in);
      case ulb::kNfs3Commit:
        return commit(in);
      default:
        return false;
    }
  }

 private:
  using Object = typename Files::Object;

  /// Result of the common checks.
  struct Target {
    Status status = Status::Stale;
    Object object;
    Credential credential;
    const ExportOptions* options = nullptr;
    PublishedRoot root;
  };

  bool find(std::span<const std::byte> handle, Target& target) noexcept {
    const auto decoded = context_.fs.decode(handle);
    if (!decoded) return target.status = Status::BadHandle, true;
    if (decoded->inode == 0 || decoded->inode > context_.fs.max_files()) return true;  // stale
    if (!files_.load(decoded->inode, target.object)) return false;
    const FileAttributes& file = target.object.attributes();
    if (file.type == FileType::None) return true;
    if (!files_.root(file.export_id, target.root)) return false;
    if (!context_.fs.names(*decoded, file, target.root)) return true;
    const std::uint32_t id = file.export_id;
    if (id >= context_.exports.size() || !context_.exports[id].in_use) return true;
    if (!files_.applies(id, target.root)) return false;
    export_ = id;
    const ExportOptions& options = context_.exports[id];
    if (!options.serves(call_.peer(), call_.peer_host())) return target.status = Status::Acces, true;
    target.status = Status::Ok;
    target.options = &options;
    target.credential = squash(call_, options);
    return true;
  }

  bool garbage() noexcept { return call_.complete(rpc::AcceptStat::GarbageArgs), true; }
  bool end(Status status) noexcept {
    context_.statistics[export_].count(call_.header(), status);
    return call_.complete(rpc::AcceptStat::Success), true;
  }
  bool fail(Status status) noexcept {
    put_status(call_.results(), status);
    call_.results().boolean(false);  // no attributes
    return end(status);
  }
  bool fail(Status status, const Object& object) noexcept {
    put_status(call_.results(), status);
    put_post_op_attr(call_.results(), object.attributes(), object.number);
    return end(status);
  }
  xdr::Writer& begin(const Object& object) noexcept {
    put_status(call_.results(), Status::Ok);
    put_post_op_attr(call_.results(), object.attributes(), object.number);
    return call_.results();
  }

  bool getattr(xdr::Reader& in) noexcept {
    const auto handle = in.opaque(kMaxNfsHandle);
    if (!in.ok()) return garbage();
    Target target;
    if (!find(handle, target)) return false;
    put_status(call_.results(), target.status);
    if (target.status == Status::Ok)
      put_fattr3(call_.results(), target.object.attributes(), target.object.number);
    return end(target.status);
  }

  bool lookup(xdr::Reader& in) noexcept {
    const auto handle = in.opaque(kMaxNfsHandle);
    const std::string_view name = in.string(kMaxNameOnWire);
    if (!in.ok()) return garbage();
    Target target;
    if (!find(handle, target)) return false;
    if (target.status != Status::Ok) return fail(target.status);
    const Object& directory = target.object;
    const Status status = may_search(directory.attributes(), target.credential, name);
    if (status != Status::Ok) return fail(status, directory);
    Object found;
    if (is_dot(name)) {
      const InodeNumber number = name == "." ? directory.number : directory.attributes().parent;
      if (!files_.load(number, found)) return false;
    } else {
      const NameResult result = files_.lookup(directory.number, name, found);
      if (result == NameResult::Unknown || !files_.confirm(directory)) return false;
      if (result == NameResult::None) return fail(Status::NoEnt, directory);
    }
    // The directory may have been removed or moved since, and its numbers used again.
    if (!files_.confirm(directory)) return false;
    xdr::Writer& out = call_.results();
    put_status(out, Status::Ok);
    out.opaque(context_.fs.encode(found.number, found.attributes(), target.root));
    put_post_op_attr(out, found.attributes(), found.number);
    put_post_op_attr(out, directory.attributes(), directory.number);
    return end(Status::Ok);
  }

  bool access(xdr::Reader& in) noexcept {
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
    if (!in.ok()) return garbage();
    Target target;
    if (!find(handle, target)) return false;
    if (target.status != Status::Ok) return fail(target.status);
    const FileAttributes& file = target.object.attributes();
    const bool directory = file.type == FileType::Directory;
    std::uint32_t granted = 0;
    if (allows(file, target.credential, kRead)) granted |= kReadBit;
    if (allows(file, target.credential, kExecute))
      granted |= std::uint32_t{directory ? kLookupBit : kExecuteBit};
    if (!target.options->read_only && allows(file, target.credential, kWrite))
      granted |= kModifyBit | kExtendBit | (directory ? std::uint32_t{kDeleteBit} : 0u);
    begin(target.object).u32(granted & wanted);
    return end(Status::Ok);
  }

  bool readlink(xdr::Reader& in) noexcept {
    const auto handle = in.opaque(kMaxNfsHandle);
    if (!in.ok()) return garbage();
    Target target;
    if (!find(handle, target)) return false;
    if (target.status != Status::Ok) return fail(target.status);
    const FileAttributes& link = target.object.attributes();
    if (link.type != FileType::Symlink) return fail(Status::Inval, target.object);
    const auto bytes = static_cast<std::uint32_t>(link.size);
    if (!files_.pin(call_, target.object, 0, bytes)) return false;
    begin(target.object);
    add_file_data(link, 0, bytes);
    return end(Status::Ok);
  }

  bool read(xdr::Reader& in) noexcept {
    const auto handle = in.opaque(kMaxNfsHandle);
    const std::uint64_t offset = in.u64();
    std::uint32_t count = in.u32();
    if (!in.ok()) return garbage();
    Target target;
    if (!find(handle, target)) return false;
    if (target.status != Status::Ok) return fail(target.status);
    const FileAttributes& file = target.object.attributes();
    if (file.type == FileType::Directory) return fail(Status::IsDir, target.object);
    if (file.type != FileType::Regular) return fail(Status::Inval, target.object);
    // The owner may always read, because the client checked on open and the mode may have changed since.
    if (!owns(file, target.credential) && !allows(file, target.credential, kRead) &&
        !allows(file, target.credential, kExecute))
      return fail(Status::Acces, target.object);

    const std::uint64_t left = offset < file.size ? file.size - offset : 0;
    count =
        static_cast<std::uint32_t>(smaller_of<std::uint64_t>(smaller_of(count, context_.max_io_bytes), left));
    if (!files_.note_read(target.object) || !files_.pin(call_, target.object, offset, count)) return false;
    xdr::Writer& out = begin(target.object);
    out.u32(count);
    out.boolean(count == left);  // eof
    context_.statistics[export_].read_bytes.add(count);
    add_file_data(file, offset, count);
    return end(Status::Ok);
  }

  /// Adds pinned blocks to the reply. Holes are read from a block of zeros.
  void add_file_data(const FileAttributes& file, std::uint64_t offset, std::uint32_t bytes) noexcept {
    SLUICE_INVARIANT_DEBUG(bytes == 0 || (offset < file.size && bytes <= file.size - offset), buffer_bounds);
    const Block* pinned = files_.pinned(call_);
    call_.results().u32(bytes);
    for (std::uint32_t left = bytes; left > 0;) {
      const auto within = static_cast<std::uint32_t>(offset % kLargeBytes);
      const std::uint32_t run = smaller_of(left, kLargeBytes - within);
      const Block block = *pinned++;
      // A small block may be shorter than the file. The rest is a hole.
      const std::uint32_t there = block == 0   ? 0
                                  : file.small ? kSmallBytes - smaller_of(within, kSmallBytes)
                                               : run;
      const std::uint32_t data = smaller_of(run, there);
      SLUICE_INVARIANT_DEBUG(data <= run, table_index);
      if (data > 0)
        call_.add_result_piece(
            {context_.data.data() + std::size_t{block - 1} * kSmallBytes + within, data, context_.data_lkey});
      if (data < run) call_.add_result_piece({context_.zeros.bytes.data(), run - data, context_.zeros.lkey});
      offset += run;
      left -= run;
    }
    call_.add_result_item(bytes);
  }

  /// Begins the results of a procedure whose only argument is a handle. Sets `out` to null if the call has
  /// ended with an error.
  bool begin_of_object(xdr::Reader& in, xdr::Writer*& out) noexcept {
    const auto handle = in.opaque(kMaxNfsHandle);
    if (!in.ok()) return garbage();
    Target target;
    if (!find(handle, target)) return false;
    if (target.status != Status::Ok) return fail(target.status);
    out = &begin(target.object);
    return true;
  }

  bool fsinfo(xdr::Reader& in) noexcept {
    enum : std::uint32_t { kLinks = 1, kSymlinks = 2, kHomogeneous = 8, kCanSetTime = 16 };
    xdr::Writer* out = nullptr;
    if (!begin_of_object(in, out)) return false;
    if (out == nullptr) return true;
    const std::uint32_t most = context_.max_io_bytes;
    for (const std::uint32_t value : {most, most, kSmallBytes, most, most, kSmallBytes, kMaxReaddirBytes})
      out->u32(value);
    out->u64(kMaxFileBytes);
    put_time(*out, 1);  // time_delta: a nanosecond
    out->u32(kLinks | kSymlinks | kHomogeneous | kCanSetTime);
    return end(Status::Ok);
  }

  bool pathconf(xdr::Reader& in) noexcept {
    xdr::Writer* out = nullptr;
    if (!begin_of_object(in, out)) return false;
    if (out == nullptr) return true;
    out->u32(kMaxLinks);
    out->u32(kMaxNameBytes);
    out->boolean(true);   // no_trunc
    out->boolean(true);   // chown_restricted
    out->boolean(false);  // case_insensitive
    out->boolean(true);   // case_preserving
    return end(Status::Ok);
  }

  bool commit(xdr::Reader& in) noexcept {
    const auto handle = in.opaque(kMaxNfsHandle);
    in.u64();
    in.u32();
    if (!in.ok()) return garbage();
    Target target;
    if (!find(handle, target)) return false;
    const Object& file = target.object;
    Status status = target.status;
    if (status == Status::Ok && file.attributes().type != FileType::Regular) status = Status::Inval;
    xdr::Writer& out = call_.results();
    put_status(out, status);
    if (target.status == Status::Ok) {
      put_unchanged_wcc_data(out, file.attributes(), file.number);
    } else {
      out.boolean(false);  // no attributes before
      out.boolean(false);  // and after
    }
    if (status == Status::Ok) out.opaque_fixed(context_.write_verifier);
    return end(status);
  }

  Files& files_;
  const ReadContext& context_;
  Call& call_;
  std::uint32_t export_ = kNoExport;
};

}  // namespace sluice::service::memory
