// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/service/memory/nfs3_client.h"

#include <sys/mman.h>

#include "tests/unit/service/memory/nfs3_codec.h"
#include "tests/unit/service/memory/nfs3_transport.h"

namespace sluice::service::test {
namespace {

std::uint64_t now_ns = 1'700'000'000 * kBillion;
std::uint32_t over_version = 0;
bool by_reader = false;

rdma::MemoryRegion map_region(std::size_t bytes, std::uint32_t lkey) {
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {{static_cast<std::byte*>(memory), bytes}, rdma::Lkey{lkey}};
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

void call_over_version(std::uint32_t version) noexcept {
  over_version = version;
}

void call_by_reader() noexcept {
  by_reader = true;
}

Lab::Lab(Options options)
    : transport_(over_version > 0 ? std::make_unique<Transport>(over_version) : nullptr),
      arena_(map_region(options.arena_bytes + (by_reader ? 2 * memory::kLargeBytes : 0), 11)),
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
  if (by_reader)
    reader_ = std::make_unique<memory::FileReader>(
        *service_, *service_, memory::FileReader::Keys{.data = arena_.lkey, .zeros = zeros_.lkey});
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
    call.at_completion = [this] {
      if (front_ != nullptr) return;  // the test may have opened something
      EXPECT_TRUE(service_->file_system().is_published()) << "a reader could miss what the client is told";
    };
    EXPECT_EQ(call.execute(service), Execution::Started);
    EXPECT_EQ(call.completions(), 1);
    if (reader_) {  // the iteration of each reactor ends
      service_->background(0);
      reader_->background(0);
    }
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
  return run(front(), ulb::kNfsProgram, procedure, arguments, caller);
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
