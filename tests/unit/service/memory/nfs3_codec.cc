// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/service/memory/nfs3_codec.h"

namespace sluice::service::test {
namespace {

std::uint64_t take_time(xdr::Reader& in) {
  const std::uint64_t seconds = in.u32();
  const std::uint32_t nanoseconds = in.u32();
  EXPECT_LT(nanoseconds, kBillion);
  return seconds * kBillion + nanoseconds;
}

Attr take_fattr(xdr::Reader& in) {
  Attr attr;
  attr.type = in.u32();
  attr.mode = in.u32();
  attr.links = in.u32();
  attr.uid = in.u32();
  attr.gid = in.u32();
  attr.size = in.u64();
  attr.used = in.u64();
  attr.major = in.u32();
  attr.minor = in.u32();
  attr.fsid = in.u64();
  attr.fileid = in.u64();
  attr.atime = take_time(in);
  attr.mtime = take_time(in);
  attr.ctime = take_time(in);
  EXPECT_GE(attr.type, 1u);
  EXPECT_LE(attr.type, 7u);
  EXPECT_EQ(attr.mode & ~07777u, 0u);
  return attr;
}

Wcc take_wcc(xdr::Reader& in) {
  Wcc wcc;
  if (in.boolean()) {
    wcc.before.emplace();
    wcc.before->size = in.u64();
    wcc.before->mtime = take_time(in);
    wcc.before->ctime = take_time(in);
  }
  wcc.after = take_post_op_attr(in);
  return wcc;
}

Bytes take_opaque(xdr::Reader& in, std::uint32_t most) {
  const auto bytes = in.opaque(most);
  return {bytes.begin(), bytes.end()};
}

void take_entries(xdr::Reader& in, Result& result, bool plus) {
  while (in.boolean()) {
    DirEntry entry;
    entry.fileid = in.u64();
    entry.name = in.string(255);
    entry.cookie = in.u64();
    if (plus) {
      entry.attr = take_post_op_attr(in);
      if (in.boolean()) entry.handle = take_opaque(in, 64);
    }
    result.entries.push_back(std::move(entry));
  }
  result.eof = in.boolean();
}

}  // namespace

std::optional<Attr> take_post_op_attr(xdr::Reader& in) {
  return in.boolean() ? std::optional(take_fattr(in)) : std::nullopt;
}

std::vector<AclEntry> take_acl(xdr::Reader& in) {
  std::vector<AclEntry> acl(in.u32());
  for (AclEntry& entry : acl) {
    entry.type = in.u32();
    entry.id = in.u32();
    entry.permissions = in.u32();
  }
  return acl;
}

void put_time(xdr::Writer& out, std::uint64_t ns) {
  out.u32(static_cast<std::uint32_t>(ns / kBillion));
  out.u32(static_cast<std::uint32_t>(ns % kBillion));
}

void put_set(xdr::Writer& out, const Set& set) {
  const auto optional = [&](const std::optional<std::uint32_t>& value) {
    out.boolean(value.has_value());
    if (value) out.u32(*value);
  };
  optional(set.mode);
  optional(set.uid);
  optional(set.gid);
  out.boolean(set.size.has_value());
  if (set.size) out.u64(*set.size);
  out.u32(set.atime_how);
  if (set.atime_how == 2) put_time(out, set.atime);
  out.u32(set.mtime_how);
  if (set.mtime_how == 2) put_time(out, set.mtime);
}

void put_acl(xdr::Writer& out, const std::vector<AclEntry>& acl) {
  out.u32(static_cast<std::uint32_t>(acl.size()));
  out.u32(static_cast<std::uint32_t>(acl.size()));
  for (const AclEntry& entry : acl)
    for (const std::uint32_t word : {entry.type, entry.id, entry.permissions}) out.u32(word);
}

Bytes encode(const std::function<void(xdr::Writer&)>& put) {
  static Bytes room((5 << 20) + 4096);
  xdr::Writer out(room);
  put(out);
  EXPECT_TRUE(out.ok());
  return {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(out.position())};
}

Bytes write_head(const Handle& file, std::uint64_t offset, std::uint32_t count, std::uint32_t stable) {
  return encode([&](xdr::Writer& out) {
    out.opaque(file);
    out.u64(offset);
    out.u32(count);
    out.u32(stable);
    out.u32(count);
  });
}

Result decode(std::uint32_t procedure, const Bytes& results) {
  Result result;
  result.accepted = rpc::AcceptStat::Success;
  result.reply_bytes = results.size();
  xdr::Reader in(results);
  if (procedure == ulb::kNfs3Null) {
    EXPECT_EQ(in.remaining(), 0u);
    result.status = Status::Ok;
    return result;
  }
  result.status = static_cast<Status>(in.u32());
  const bool good = result.status == Status::Ok;
  switch (procedure) {
    case ulb::kNfs3GetAttr:
      if (good) result.attr = take_fattr(in);
      break;
    case ulb::kNfs3SetAttr:
    case ulb::kNfs3Remove:
    case ulb::kNfs3RmDir:
      result.wcc = take_wcc(in);
      break;
    case ulb::kNfs3Lookup:
      if (good) result.handle = take_opaque(in, 64);
      if (good) result.attr = take_post_op_attr(in);
      result.dir_attr = take_post_op_attr(in);
      break;
    case ulb::kNfs3Access:
      result.attr = take_post_op_attr(in);
      if (good) result.access = in.u32();
      break;
    case ulb::kNfs3ReadLink:
      result.attr = take_post_op_attr(in);
      if (good) result.data = take_opaque(in, 4096);
      break;
    case ulb::kNfs3Read:
      result.attr = take_post_op_attr(in);
      if (!good) break;
      result.count = in.u32();
      result.eof = in.boolean();
      result.data = take_opaque(in, memory::kMaxTransferBytes);
      EXPECT_EQ(result.data.size(), result.count);
      break;
    case ulb::kNfs3Write:
      result.wcc = take_wcc(in);
      if (!good) break;
      result.count = in.u32();
      result.committed = in.u32();
      result.verifier = in.u64();
      break;
    case ulb::kNfs3Create:
    case ulb::kNfs3MkDir:
    case ulb::kNfs3SymLink:
    case ulb::kNfs3MkNod:
      if (good && in.boolean()) result.handle = take_opaque(in, 64);
      if (good) result.attr = take_post_op_attr(in);
      result.wcc = take_wcc(in);
      break;
    case ulb::kNfs3Rename:
      result.wcc = take_wcc(in);
      result.to_wcc = take_wcc(in);
      break;
    case ulb::kNfs3Link:
      result.attr = take_post_op_attr(in);
      result.wcc = take_wcc(in);
      break;
    case ulb::kNfs3ReadDir:
    case ulb::kNfs3ReadDirPlus:
      result.attr = take_post_op_attr(in);
      if (!good) break;
      result.verifier = in.u64();
      take_entries(in, result, procedure == ulb::kNfs3ReadDirPlus);
      break;
    case ulb::kNfs3FsStat:
      result.attr = take_post_op_attr(in);
      for (int i = 0; good && i < 6; ++i) result.numbers.push_back(in.u64());
      if (good) result.numbers.push_back(in.u32());
      break;
    case ulb::kNfs3FsInfo:
      result.attr = take_post_op_attr(in);
      for (int i = 0; good && i < 7; ++i) result.numbers.push_back(in.u32());
      if (good) result.numbers.push_back(in.u64());
      if (good) result.numbers.push_back(take_time(in));
      if (good) result.numbers.push_back(in.u32());
      break;
    case ulb::kNfs3PathConf:
      result.attr = take_post_op_attr(in);
      for (int i = 0; good && i < 2; ++i) result.numbers.push_back(in.u32());
      for (int i = 0; good && i < 4; ++i) result.numbers.push_back(in.boolean() ? 1 : 0);
      break;
    case ulb::kNfs3Commit:
      result.wcc = take_wcc(in);
      if (good) result.verifier = in.u64();
      break;
    default:
      ADD_FAILURE() << "no such procedure";
  }
  EXPECT_TRUE(in.ok()) << "procedure " << procedure << ": the reply is too short";
  EXPECT_EQ(in.remaining(), 0u) << "procedure " << procedure << ": the reply is too long";
  return result;
}

}  // namespace sluice::service::test
