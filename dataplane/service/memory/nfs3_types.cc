// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/memory/nfs3_types.h"

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
  out.opaque(fs.handle_of(number));
}

WccBefore wcc_before(FileSystem& fs, InodeNumber number) noexcept {
  const Inode& inode = fs.inode(number);
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

}  // namespace sluice::service::memory
