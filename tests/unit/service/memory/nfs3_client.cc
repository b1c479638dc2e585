// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/service/memory/nfs3_client.h"

#include <sys/mman.h>

#include "tests/unit/service/memory/nfs3_transport.h"

namespace sluice::service::test {
namespace {

constexpr std::uint64_t kBillion = 1'000'000'000;
std::uint64_t now_ns = 1'700'000'000 * kBillion;
std::uint32_t over_version = 0;

rdma::MemoryRegion map_region(std::size_t bytes, std::uint32_t lkey) {
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {{static_cast<std::byte*>(memory), bytes}, rdma::Lkey{lkey}};
}

// --- Decoding (RFC 1813, section 2)

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

std::optional<Attr> take_post_op_attr(xdr::Reader& in) {
  return in.boolean() ? std::optional(take_fattr(in)) : std::nullopt;
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

// --- Encoding

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

std::vector<AclEntry> take_acl(xdr::Reader& in) {
  std::vector<AclEntry> acl(in.u32());
  for (AclEntry& entry : acl) {
    entry.type = in.u32();
    entry.id = in.u32();
    entry.permissions = in.u32();
  }
  return acl;
}

}  // namespace

std::uint64_t test_clock() noexcept {
  return now_ns += 1000;
}
void set_test_clock(std::uint64_t ns) noexcept {
  now_ns = ns;
}

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span{text.data(), text.size()});
  return {bytes.begin(), bytes.end()};
}

std::string numbered(std::string_view prefix, std::uint64_t number) {
  std::string name(prefix);
  return name.append(std::to_string(number));
}

Bytes pattern(std::size_t bytes, std::uint32_t seed) {
  Bytes out(bytes);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::byte& byte : out) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24 | 1);  // never zero
  }
  return out;
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

// --- Lab

void call_over_version(std::uint32_t version) noexcept {
  over_version = version;
}

Lab::Lab(Options options)
    : transport_(over_version > 0 ? std::make_unique<Transport>(over_version) : nullptr),
      arena_(map_region(options.arena_bytes, 11)),
      zeros_(map_region(memory::kLargeBytes + 64, 12)) {
  MemoryServiceConfig config;
  config.max_files = options.max_files;
  config.max_io_bytes = options.max_io_bytes;
  config.handle_key = options.key;
  config.exports = options.exports;
  if (transport_) {
    arena_ = transport_->server_device().register_memory(arena_.bytes);
    zeros_ = transport_->server_device().register_memory(zeros_.bytes);
  }
  service_ = std::make_unique<MemoryService>(arena_, zeros_, config, &test_clock);
  if (!transport_) return;
  transport_->add_service(*service_);
  transport_->add_service(service_->acl_service());
}

Lab::~Lab() {
  transport_.reset();
  service_.reset();
  ::munmap(arena_.bytes.data(), arena_.bytes.size());
  ::munmap(zeros_.bytes.data(), zeros_.bytes.size());
}

Handle Lab::root(std::uint32_t export_id) {
  const auto handle = service_->root_handle(export_id);
  return {handle.begin(), handle.end()};
}

void Lab::prepare(TestCall& call, std::uint32_t procedure, const Caller& caller) {
  static std::uint32_t next_xid = 1;
  call.header() = {};
  call.header().xid = static_cast<rpc::Xid>(next_xid++);
  call.header().program = ulb::kNfsProgram;
  call.header().version = ulb::kNfs3Version;
  call.header().procedure = procedure;
  call.header().credential.flavor = caller.flavor;
  call.set_peer(caller.peer);
  call.set_peer_host(caller.host);
  if (caller.flavor != rpc::AuthFlavor::Sys) return;
  rpc::AuthSys sys{.machine_name = "client", .uid = caller.uid, .gid = caller.gid};
  for (const std::uint32_t gid : caller.gids) sys.gids[sys.gid_count++] = gid;
  xdr::Writer out(credential_);
  rpc::encode_auth_sys(out, sys);
  call.header().credential.body = out.written();
}

Result Lab::run(Service& service, std::uint32_t program, std::uint32_t procedure, const Bytes& arguments,
                const Caller& caller) {
  TestCall call;
  prepare(call, procedure, caller);
  call.header().program = program;
  rpc::ReplyHeader outcome;
  Bytes results;
  if (transport_) {
    const Transport::Answer answer = transport_->call(call.header(), caller.peer, caller.host, arguments);
    outcome = answer.header;
    results = answer.results;
  } else {
    call.start(arguments);
    EXPECT_EQ(call.execute(service), Execution::Started);
    EXPECT_EQ(call.completions(), 1);
    outcome.stat = call.denied() ? rpc::ReplyStat::Denied : rpc::ReplyStat::Accepted;
    outcome.auth = call.auth_error();
    outcome.accept = call.accepted();
    if (outcome.success()) results = call.results();
    call.release(service);
  }
  Result result;
  if (outcome.stat == rpc::ReplyStat::Denied) {
    result.denied = outcome.auth;
  } else if (outcome.accept == rpc::AcceptStat::Success && program == ulb::kNfsProgram) {
    result = decode(procedure, results);
  } else if (outcome.accept == rpc::AcceptStat::Success) {
    result.accepted = rpc::AcceptStat::Success;
    xdr::Reader in(results);
    result.status = procedure == 0 ? Status::Ok : static_cast<Status>(in.u32());
    if (procedure != 0) result.attr = take_post_op_attr(in);
    if (procedure == 1 && result.status == Status::Ok) {
      result.acl_mask = in.u32();
      result.acl_count = in.u32();
      result.acl = take_acl(in);
      EXPECT_EQ(in.u32(), 0u);
      EXPECT_TRUE(take_acl(in).empty());
    }
    EXPECT_TRUE(in.ok());
    EXPECT_EQ(in.remaining(), 0u);
  } else {
    result.accepted = outcome.accept;
  }
  return result;
}

Result Lab::call(std::uint32_t procedure, const Bytes& arguments, const Caller& caller) {
  return run(*service_, ulb::kNfsProgram, procedure, arguments, caller);
}
Result Lab::acl_call(std::uint32_t procedure, const Bytes& arguments, const Caller& caller) {
  return run(service_->acl_service(), ulb::kNfsAclProgram, procedure, arguments, caller);
}

Result Lab::getattr(const Handle& object, const Caller& who) {
  return call(ulb::kNfs3GetAttr, encode([&](auto& out) { out.opaque(object); }), who);
}

Result Lab::setattr(const Handle& object, const Set& set, const Caller& who,
                    std::optional<std::uint64_t> guard_ctime) {
  return call(ulb::kNfs3SetAttr, encode([&](auto& out) {
                out.opaque(object);
                put_set(out, set);
                out.boolean(guard_ctime.has_value());
                if (guard_ctime) put_time(out, *guard_ctime);
              }),
              who);
}

namespace {
Bytes dir_op(const Handle& dir, std::string_view name) {
  return encode([&](auto& out) {
    out.opaque(dir);
    out.string(name);
  });
}
Bytes join(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}
}  // namespace

Result Lab::lookup(const Handle& dir, std::string_view name, const Caller& who) {
  return call(ulb::kNfs3Lookup, dir_op(dir, name), who);
}

Result Lab::access(const Handle& object, std::uint32_t bits, const Caller& who) {
  return call(ulb::kNfs3Access, encode([&](auto& out) {
                out.opaque(object);
                out.u32(bits);
              }),
              who);
}

Result Lab::readlink(const Handle& link, const Caller& who) {
  return call(ulb::kNfs3ReadLink, encode([&](auto& out) { out.opaque(link); }), who);
}

Result Lab::read(const Handle& file, std::uint64_t offset, std::uint32_t count, const Caller& who) {
  return call(ulb::kNfs3Read, encode([&](auto& out) {
                out.opaque(file);
                out.u64(offset);
                out.u32(count);
              }),
              who);
}

Result Lab::write(const Handle& file, std::uint64_t offset, const Bytes& data, const Caller& who,
                  std::uint32_t stable) {
  const Bytes head = write_head(file, offset, static_cast<std::uint32_t>(data.size()), stable);
  return call(ulb::kNfs3Write, join(head, encode([&](auto& out) { out.opaque_fixed(data); })), who);
}

Result Lab::create(const Handle& dir, std::string_view name, const Set& set, const Caller& who,
                   bool guarded) {
  return call(ulb::kNfs3Create, join(dir_op(dir, name), encode([&](auto& out) {
                                       out.u32(guarded ? 1 : 0);
                                       put_set(out, set);
                                     })),
              who);
}

Result Lab::create_exclusive(const Handle& dir, std::string_view name, std::uint64_t verifier,
                             const Caller& who) {
  return call(ulb::kNfs3Create, join(dir_op(dir, name), encode([&](auto& out) {
                                       out.u32(2);
                                       out.u64(verifier);
                                     })),
              who);
}

Result Lab::mkdir(const Handle& dir, std::string_view name, const Set& set, const Caller& who) {
  return call(ulb::kNfs3MkDir, join(dir_op(dir, name), encode([&](auto& out) { put_set(out, set); })), who);
}

Result Lab::symlink(const Handle& dir, std::string_view name, std::string_view path, const Caller& who) {
  return call(ulb::kNfs3SymLink, join(dir_op(dir, name), encode([&](auto& out) {
                                        put_set(out, {});
                                        out.string(path);
                                      })),
              who);
}

Result Lab::mknod(const Handle& dir, std::string_view name, std::uint32_t type, const Caller& who,
                  const Set& set, std::uint32_t major, std::uint32_t minor) {
  return call(ulb::kNfs3MkNod, join(dir_op(dir, name), encode([&](auto& out) {
                                      out.u32(type);
                                      if (type == 3 || type == 4 || type == 6 || type == 7) put_set(out, set);
                                      if (type == 3 || type == 4) {
                                        out.u32(major);
                                        out.u32(minor);
                                      }
                                    })),
              who);
}

Result Lab::remove(const Handle& dir, std::string_view name, const Caller& who) {
  return call(ulb::kNfs3Remove, dir_op(dir, name), who);
}
Result Lab::rmdir(const Handle& dir, std::string_view name, const Caller& who) {
  return call(ulb::kNfs3RmDir, dir_op(dir, name), who);
}
Result Lab::rename(const Handle& from, std::string_view from_name, const Handle& to, std::string_view to_name,
                   const Caller& who) {
  return call(ulb::kNfs3Rename, join(dir_op(from, from_name), dir_op(to, to_name)), who);
}
Result Lab::link(const Handle& file, const Handle& dir, std::string_view name, const Caller& who) {
  return call(ulb::kNfs3Link, join(encode([&](auto& out) { out.opaque(file); }), dir_op(dir, name)), who);
}

Result Lab::readdir(const Handle& dir, std::uint64_t cookie, std::uint64_t verifier, std::uint32_t count,
                    const Caller& who) {
  return call(ulb::kNfs3ReadDir, encode([&](auto& out) {
                out.opaque(dir);
                out.u64(cookie);
                out.u64(verifier);
                out.u32(count);
              }),
              who);
}

Result Lab::readdirplus(const Handle& dir, std::uint64_t cookie, std::uint64_t verifier,
                        std::uint32_t dircount, std::uint32_t maxcount, const Caller& who) {
  return call(ulb::kNfs3ReadDirPlus, encode([&](auto& out) {
                out.opaque(dir);
                out.u64(cookie);
                out.u64(verifier);
                out.u32(dircount);
                out.u32(maxcount);
              }),
              who);
}

Result Lab::fsstat(const Handle& object, const Caller& who) {
  return call(ulb::kNfs3FsStat, encode([&](auto& out) { out.opaque(object); }), who);
}
Result Lab::fsinfo(const Handle& object, const Caller& who) {
  return call(ulb::kNfs3FsInfo, encode([&](auto& out) { out.opaque(object); }), who);
}
Result Lab::pathconf(const Handle& object, const Caller& who) {
  return call(ulb::kNfs3PathConf, encode([&](auto& out) { out.opaque(object); }), who);
}
Result Lab::commit(const Handle& file, const Caller& who) {
  return call(ulb::kNfs3Commit, encode([&](auto& out) {
                out.opaque(file);
                out.u64(0);
                out.u32(0);
              }),
              who);
}

Result Lab::getacl(const Handle& object, std::uint32_t mask, const Caller& who) {
  return acl_call(1, encode([&](auto& out) {
                    out.opaque(object);
                    out.u32(mask);
                  }),
                  who);
}
Result Lab::setacl(const Handle& object, std::uint32_t mask, const std::vector<AclEntry>& acl,
                   const std::vector<AclEntry>& default_acl, const Caller& who) {
  return acl_call(2, encode([&](auto& out) {
                    out.opaque(object);
                    out.u32(mask);
                    put_acl(out, acl);
                    put_acl(out, default_acl);
                  }),
                  who);
}

Handle Lab::file(const Handle& dir, std::string_view name, std::uint32_t mode) {
  const Result made = create(dir, name, {.mode = mode}, kRoot, true);
  EXPECT_TRUE(made.ok()) << name;
  return made.handle;
}
Handle Lab::directory(const Handle& dir, std::string_view name, std::uint32_t mode) {
  const Result made = mkdir(dir, name, {.mode = mode});
  EXPECT_TRUE(made.ok()) << name;
  return made.handle;
}

std::vector<DirEntry> Lab::list(const Handle& dir, std::uint32_t count) {
  std::vector<DirEntry> all;
  std::uint64_t cookie = 0;
  std::uint64_t verifier = 0;
  for (bool eof = false; !eof;) {
    Result part = readdir(dir, cookie, verifier, count);
    EXPECT_TRUE(part.ok());
    if (!part.ok() || (part.entries.empty() && !part.eof)) break;
    eof = part.eof;
    verifier = part.verifier;
    for (DirEntry& entry : part.entries) {
      cookie = entry.cookie;
      if (entry.name != "." && entry.name != "..") all.push_back(std::move(entry));
    }
  }
  return all;
}

Bytes Lab::read_all(const Handle& file) {
  Bytes all;
  for (bool eof = false; !eof;) {
    const Result part = read(file, all.size(), 1 << 20);
    EXPECT_TRUE(part.ok());
    if (!part.ok() || (part.count == 0 && !part.eof)) break;
    all.insert(all.end(), part.data.begin(), part.data.end());
    eof = part.eof;
  }
  return all;
}

}  // namespace sluice::service::test
