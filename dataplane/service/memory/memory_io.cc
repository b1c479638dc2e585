// SPDX-License-Identifier: Apache-2.0
//
// Attributes on the wire, WRITE, and the end of READ and WRITE. RDMA moves data directly between the
// requester's memory and the blocks.
#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/service/memory/memory_service.h"

#include "dataplane/base/small_algorithms.h"

namespace sluice::service::memory {

void put_fattr3(xdr::Writer& out, const FileAttributes& file, InodeNumber number) noexcept {
  out.u32(static_cast<std::uint32_t>(file.type));
  out.u32(file.mode);
  out.u32(file.links);
  out.u32(file.uid);
  out.u32(file.gid);
  out.u64(file.size);
  out.u64(file.used_bytes);
  out.u32(file.device_major);
  out.u32(file.device_minor);
  out.u64(std::uint64_t{file.export_id} + 1);  // fsid
  out.u64(number);                             // fileid
  put_time(out, file.atime_ns);
  put_time(out, file.mtime_ns);
  put_time(out, file.ctime_ns);
}

void put_post_op_attr(xdr::Writer& out, const FileSystem& fs, InodeNumber number) noexcept {
  const bool there = number != 0 && fs.inode(number).type != FileType::None;
  out.boolean(there);
  if (there) put_fattr3(out, fs.inode(number), number);
}

void put_post_op_fh3(xdr::Writer& out, const FileSystem& fs, InodeNumber number) noexcept {
  out.boolean(true);
  SLUICE_INVARIANT_DEBUG(number != 0, file_storage);
  out.opaque(fs.handle_of(number));
}

WccBefore wcc_before(const FileSystem& fs, InodeNumber number) noexcept {
  const Inode& inode = fs.inode(number);
  SLUICE_INVARIANT_DEBUG(number != 0 && inode.type != FileType::None, file_storage);
  return {number, inode.size, inode.mtime_ns, inode.ctime_ns};
}

void put_wcc_data(xdr::Writer& out, const FileSystem& fs, const WccBefore& before) noexcept {
  out.boolean(before.number != 0);
  if (before.number != 0) {
    out.u64(before.size);
    put_time(out, before.mtime_ns);
    put_time(out, before.ctime_ns);
  }
  put_post_op_attr(out, fs, before.number);
}

void put_unchanged_wcc_data(xdr::Writer& out, const FileAttributes& file, InodeNumber number) noexcept {
  out.boolean(true);
  out.u64(file.size);
  put_time(out, file.mtime_ns);
  put_time(out, file.ctime_ns);
  put_post_op_attr(out, file, number);
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

// --- WRITE ---------------------------------------------------------------------------------------

namespace {

enum StableHow : std::uint32_t { kUnstable = 0, kDataSync = 1, kFileSync = 2 };

struct WriteArguments {
  std::span<const std::byte> handle;
  std::uint64_t offset = 0;
  std::uint32_t count = 0;
  std::uint32_t data_bytes = 0;
};

/// Decodes WRITE3args up to the count word of the data (RFC 1813, section 3.3.7).
WriteArguments get_write_arguments(xdr::Reader& in) noexcept {
  WriteArguments arguments;
  arguments.handle = in.opaque(kMaxNfsHandle);
  arguments.offset = in.u64();
  arguments.count = in.u32();
  if (in.u32() > kFileSync) in.fail();
  arguments.data_bytes = in.u32();
  if (arguments.data_bytes != arguments.count) in.fail();
  return arguments;
}

}  // namespace

Status MemoryService::check_write(const Target& file, std::uint64_t offset, std::uint32_t bytes) noexcept {
  const Inode& inode = fs_.inode(file.number);
  if (inode.type == FileType::Directory) return Status::IsDir;
  if (inode.type != FileType::Regular) return Status::Inval;
  if (file.options->read_only) return Status::RoFs;
  if (!owns(inode, file.credential) && !allows(inode, file.credential, kWrite)) return Status::Acces;
  if (bytes > max_io_bytes_) return Status::Inval;
  if (offset > kMaxFileBytes - bytes) return Status::FBig;
  return fs_.ensure_blocks(file.number, offset, bytes);
}

void MemoryService::write_ok(Call& call, const WccBefore& before, std::uint32_t count) noexcept {
  xdr::Writer& out = call.results();
  put_status(out, Status::Ok);
  put_wcc_data(out, fs_, before);
  out.u32(count);
  out.u32(kFileSync);
  out.opaque_fixed(write_verifier_);
  statistics_[current_export_].written_bytes.add(count);
  succeed(call, Status::Ok);
}

void MemoryService::end_write(InodeNumber number, std::uint64_t end, bool by_root) noexcept {
  Inode& inode = fs_.change(number);
  inode.size = larger_of(inode.size, end);
  inode.mtime_ns = inode.ctime_ns = fs_.now_ns();
  if (!by_root) strip_set_id(inode);
}

/// Executes a WRITE whose data is inline in the call, by copying it.
void MemoryService::write(Call& call, xdr::Reader& in) noexcept {
  const WriteArguments arguments = get_write_arguments(in);
  const auto data = in.opaque_fixed(arguments.data_bytes);
  if (!in.ok()) return call.complete(rpc::AcceptStat::GarbageArgs);
  const Target file = target(call, arguments.handle);
  if (file.status != Status::Ok) return end_with_wcc(call, file.status, {});
  const WccBefore before = wcc_before(fs_, file.number);
  const Status status = check_write(file, arguments.offset, arguments.count);
  if (status != Status::Ok) return end_with_wcc(call, status, before);

  const Inode& inode = fs_.inode(file.number);
  std::uint64_t offset = arguments.offset;
  for (std::size_t done = 0; done < data.size();) {
    const std::size_t within = offset % kLargeBytes;
    const std::size_t run = smaller_of(data.size() - done, kLargeBytes - within);
    const Block block = fs_.block_of(inode, static_cast<std::uint32_t>(offset / kLargeBytes));
    SLUICE_INVARIANT_DEBUG(block != 0 && (!inode.small || within + run <= kSmallBytes), buffer_bounds);
    std::memcpy(fs_.blocks().data(block) + within, data.data() + done, run);
    done += run;
    offset += run;
  }
  if (arguments.count > 0) end_write(file.number, offset, file.credential.uid == 0);
  write_ok(call, before, arguments.count);
}

/// Executes the first part of a WRITE whose data is in a Read chunk: checks everything, then has the data
/// read directly into the file's blocks.
Placement MemoryService::place(Call& call) noexcept {
  if (call.header().procedure != ulb::kNfs3Write) return Placement::Assemble;
  if (!authenticate(call)) return Placement::Reply;
  xdr::Reader in(call.arguments());
  const WriteArguments arguments = get_write_arguments(in);
  const std::uint32_t placed = call.placed_bytes();
  if (!in.ok() || in.remaining() != 0 || placed < arguments.count || placed > xdr::padded(arguments.count)) {
    call.complete(rpc::AcceptStat::GarbageArgs);
    return Placement::Reply;
  }
  const Target file = target(call, arguments.handle);
  WccBefore before;
  Status status = file.status;
  if (status == Status::Ok) {
    before = wcc_before(fs_, file.number);
    status = check_write(file, arguments.offset, arguments.count);
  }
  if (status != Status::Ok) {
    end_with_wcc(call, status, before);
    return Placement::Reply;
  }

  fs_.publish();
  const Inode& inode = fs_.inode(file.number);
  BlockPool& blocks = fs_.blocks();
  auto& transfer = call.state<Transfer>();
  transfer = {.inode = file.number,
              .generation = inode.generation,
              .offset = arguments.offset,
              .bytes = arguments.count,
              .blocks = 0,
              .writing = true,
              .by_root = file.credential.uid == 0,
              .pinned = {}};
  std::uint64_t offset = arguments.offset;
  for (std::uint32_t left = arguments.count; left > 0;) {
    const auto within = static_cast<std::uint32_t>(offset % kLargeBytes);
    const std::uint32_t run = smaller_of(left, kLargeBytes - within);
    const Block block = fs_.block_of(inode, static_cast<std::uint32_t>(offset / kLargeBytes));
    SLUICE_INVARIANT_DEBUG(block != 0 && (!inode.small || within + run <= kSmallBytes), buffer_bounds);
    SLUICE_INVARIANT_DEBUG(transfer.blocks < kMaxTransferBlocks, table_index);
    blocks.pin(block);
    transfer.pinned[transfer.blocks++] = block;
    call.add_sink_piece({blocks.data(block) + within, run, blocks.lkey()});
    offset += run;
    left -= run;
  }
  if (placed > arguments.count) call.add_sink_piece({pad_.bytes.data(), placed - arguments.count, pad_.lkey});
  return Placement::Sink;
}

/// Completes a WRITE whose data has arrived in the blocks that the file had when place() ran.
void MemoryService::commit_placed(Call& call) noexcept {
  auto& transfer = call.state<Transfer>();
  SLUICE_INVARIANT_DEBUG(transfer.writing && transfer.blocks <= kMaxTransferBlocks, file_storage);
  const Inode& inode = fs_.inode(transfer.inode);
  current_export_ = inode.export_id;
  if (inode.generation != transfer.generation || inode.type != FileType::Regular)
    return end_with_wcc(call, Status::Stale, {});
  const WccBefore before = wcc_before(fs_, transfer.inode);
  const Status status = fs_.ensure_blocks(transfer.inode, transfer.offset, transfer.bytes);
  if (status != Status::Ok) return end_with_wcc(call, status, before);

  // A truncation or another WRITE may have replaced blocks of the file since.
  std::uint64_t offset = transfer.offset;
  const std::uint64_t end = offset + transfer.bytes;
  for (std::uint32_t i = 0; i < transfer.blocks; ++i) {
    const std::size_t within = offset % kLargeBytes;
    const auto run = static_cast<std::size_t>(smaller_of<std::uint64_t>(end - offset, kLargeBytes - within));
    const Block block = fs_.block_of(inode, static_cast<std::uint32_t>(offset / kLargeBytes));
    SLUICE_INVARIANT_DEBUG(block != 0 && transfer.pinned[i] != 0, file_storage);
    if (block != transfer.pinned[i])
      std::memcpy(fs_.blocks().data(block) + within, fs_.blocks().data(transfer.pinned[i]) + within, run);
    offset += run;
  }
  end_write(transfer.inode, end, transfer.by_root);
  transfer.writing = false;
  write_ok(call, before, transfer.bytes);
}

/// Ends a transfer. An aborted WRITE may have changed bytes of the file, which shows in its attributes as
/// after any other WRITE. It may also have left bytes after the end of the file, which must read as zeros
/// later. If other transfers use the block, the last one clears them.
void MemoryService::release(Call& call) noexcept {
  if (!call.has_state()) return;
  auto& transfer = call.state<Transfer>();
  SLUICE_INVARIANT_DEBUG(transfer.blocks <= kMaxTransferBlocks, table_index);
  const Inode& inode = fs_.inode(transfer.inode);
  const bool there = inode.generation == transfer.generation && inode.type != FileType::None;
  // The blocks do not matter, because a block that replaced a pinned one has a copy of the data that had
  // arrived.
  if (there && transfer.writing && transfer.bytes > 0 && transfer.offset < inode.size)
    end_write(transfer.inode, inode.size, transfer.by_root);
  for (std::uint32_t i = 0; i < transfer.blocks; ++i) {
    const Block block = transfer.pinned[i];
    if (block == 0) continue;
    SLUICE_INVARIANT_DEBUG(fs_.blocks().pins(block) > 0, file_storage);
    const auto index = static_cast<std::uint32_t>(transfer.offset / kLargeBytes) + i;
    const bool given_up = transfer.writing && fs_.block_of(inode, index) == block;
    if (there && (given_up || fs_.must_forget_tail(inode, index, block)))
      fs_.forget_tail(transfer.inode, index);
    fs_.blocks().unpin(block);
  }
  fs_.publish();
  transfer = {};
}

}  // namespace sluice::service::memory
