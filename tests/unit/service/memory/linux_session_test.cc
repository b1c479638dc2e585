// SPDX-License-Identifier: Apache-2.0
//
// Replays the calls of a Linux client to the Linux server, with that server's handles replaced by this
// service's, and compares the answers. This also checks the tests' own decoder on replies of that server.
#include "tests/unit/service/memory/linux_session.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {
namespace {

Bytes unhex(std::string_view text) {
  Bytes out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  return out;
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class LinuxSession : public testing::Test {
 protected:
  LinuxSession() {
    // Files that exist at the start of the recorded session.
    lab.setattr(root, {.mode = 0777});
    const Handle dir = lab.directory(root, "dir");
    for (unsigned i = 1; i <= 5; ++i) {
      const Handle f = lab.file(dir, numbered("f", i));
      lab.write(f, 0, contents(i));
    }
    lab.symlink(root, "link", "dir/f1");
    lab.file(root, "r4k");
  }
  static Bytes contents(unsigned i) { return bytes_of(numbered("content ", i).append("\n")); }

  /// Returns the arguments with the handles of this service.
  Bytes translated(std::uint32_t program, std::uint32_t procedure, const Bytes& arguments) {
    if (arguments.empty()) return {};
    return encode([&](xdr::Writer& out) {
      xdr::Reader in(arguments);
      const auto handle = [&] {
        const auto theirs = in.opaque(64);
        const std::string key = text(theirs);
        EXPECT_TRUE(ours.contains(key)) << "a handle that no reply has named";
        out.opaque(ours[key]);
      };
      handle();
      if (program == ulb::kNfsProgram && procedure == ulb::kNfs3Rename) {
        out.string(in.string(255));
        handle();
      }
      if (program == ulb::kNfsProgram && procedure == ulb::kNfs3Link) handle();
      out.opaque_fixed(in.rest());
    });
  }

  void expect_same_attr(const std::optional<Attr>& mine, const std::optional<Attr>& theirs) {
    if (!theirs) return;  // optional: that server omits them from FSINFO and PATHCONF
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->type, theirs->type);
    EXPECT_EQ(mine->mode, theirs->mode);
    EXPECT_EQ(mine->uid, theirs->uid);
    EXPECT_EQ(mine->gid, theirs->gid);
    if (mine->type == static_cast<std::uint32_t>(FileType::Directory))
      return;  // size and link count depend on the file system
    EXPECT_EQ(mine->links, theirs->links);
    if (mine->fileid != unknown_size) {
      EXPECT_EQ(mine->size, theirs->size);
    }
  }
  void expect_same_wcc(const Wcc& mine, const Wcc& theirs) {
    // The Linux server omits the attributes before a WRITE, because it cannot determine them reliably. This
    // service returns them.
    EXPECT_TRUE(mine.before.has_value() || !theirs.before.has_value());
    expect_same_attr(mine.after, theirs.after);
  }
  void learn(const Result& mine, const Result& theirs) {
    if (!theirs.handle.empty()) ours[text(theirs.handle)] = mine.handle;
    for (const DirEntry& there : theirs.entries)
      for (const DirEntry& here : mine.entries)
        if (here.name == there.name) ours[text(there.handle)] = here.handle;
  }

  Lab lab;
  const Handle root = lab.root();
  std::map<std::string, Handle> ours;
  std::uint64_t unknown_size = 0;  ///< a file whose contents the session does not show
};

TEST_F(LinuxSession, nfs3_answers_are_those_of_the_linux_server) {
  unknown_size = lab.lookup(root, "r4k").attr->fileid;
  bool first = true;
  for (const RecordedCall& recorded : kLinuxSession) {
    if (recorded.program != ulb::kNfsProgram || recorded.procedure == ulb::kNfs3Null) continue;
    const Bytes arguments = unhex(recorded.arguments);
    if (first) {  // the session begins with the root
      xdr::Reader in(arguments);
      const auto theirs = in.opaque(64);
      ours[text(theirs)] = root;
      first = false;
    }
    SCOPED_TRACE(testing::Message() << "procedure " << recorded.procedure);
    const Result theirs = decode(recorded.procedure, unhex(recorded.results));
    const Result mine =
        lab.call(recorded.procedure, translated(recorded.program, recorded.procedure, arguments), kRoot);
    ASSERT_EQ(mine.accepted, rpc::AcceptStat::Success);
    ASSERT_EQ(mine.status, theirs.status);
    learn(mine, theirs);
    expect_same_attr(mine.attr, theirs.attr);
    expect_same_attr(mine.dir_attr, theirs.dir_attr);
    expect_same_wcc(mine.wcc, theirs.wcc);
    expect_same_wcc(mine.to_wcc, theirs.to_wcc);
    EXPECT_EQ(mine.handle.empty(), theirs.handle.empty());
    EXPECT_EQ(mine.count, theirs.count);
    EXPECT_EQ(mine.committed, theirs.committed);
    EXPECT_EQ(mine.access, theirs.access);
    EXPECT_EQ(mine.eof, theirs.eof);
    if (recorded.procedure != ulb::kNfs3Read) {
      EXPECT_EQ(mine.data, theirs.data);
    }
    EXPECT_EQ(mine.data.size(), theirs.data.size());
    EXPECT_EQ(mine.numbers.size(), theirs.numbers.size());
    std::set<std::string> my_names;
    std::set<std::string> their_names;
    for (const DirEntry& entry : mine.entries) my_names.insert(entry.name);
    for (const DirEntry& entry : theirs.entries) their_names.insert(entry.name);
    EXPECT_EQ(my_names, their_names);
  }
}

TEST_F(LinuxSession, getacl_answers_are_those_of_the_linux_server) {
  // The capture does not show the objects of these handles, so any mode that gives the recorded answer is
  // accepted.
  int compared = 0;
  for (const RecordedCall& recorded : kLinuxSession) {
    if (recorded.program != ulb::kNfsAclProgram || recorded.procedure != 1) continue;
    const Bytes results = unhex(recorded.results);
    xdr::Reader in(results);
    ASSERT_EQ(in.u32(), 0u);
    in.skip(4);
    const std::uint32_t type = in.u32();
    const std::uint32_t mode = in.u32();
    const std::string name = numbered("acl", static_cast<unsigned>(compared));
    const Handle object = type == 2 ? lab.directory(root, name, mode) : lab.file(root, name, mode);
    Bytes asked = unhex(recorded.arguments);
    asked = encode([&](auto& out) {
      out.opaque(object);
      out.opaque_fixed(std::span(asked).last(4));
    });
    TestCall call;
    lab.prepare(call, 1, kRoot);
    call.header().program = ulb::kNfsAclProgram;
    call.start(asked);
    call.execute(lab.service().acl_service());
    const Bytes mine = call.results();
    constexpr std::size_t kAttributes = 4 + 4 + 84;
    ASSERT_EQ(mine.size(), results.size());
    EXPECT_TRUE(std::equal(mine.begin() + kAttributes, mine.end(), results.begin() + kAttributes))
        << "mask and lists, byte by byte";
    call.release(lab.service().acl_service());
    ++compared;
  }
  EXPECT_EQ(compared, 7);
}

}  // namespace
}  // namespace sluice::service::test
