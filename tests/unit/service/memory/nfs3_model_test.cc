// SPDX-License-Identifier: Apache-2.0
//
// Applies random operations to the export and to a model of plain containers. Both must agree, and at the end
// all memory must be accounted for.
#include <algorithm>
#include <map>
#include <random>

#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {
namespace {

struct Node {
  bool directory = false;
  Handle handle;
  Bytes data;                                ///< file
  std::map<std::string, std::size_t> names;  ///< directory: index of the node
  std::uint32_t links = 1;
  std::size_t parent = 0;
};

class Model {
 public:
  Model(Lab& lab, unsigned seed) : lab_(lab), random_(seed) {
    nodes_.push_back({.directory = true, .handle = lab.root(), .data = {}, .names = {}});
  }

  void step() {
    switch (random_() % 14) {
      case 0:
        return make(false);
      case 1:
        return make(true);
      case 2:
        return remove();
      case 3:
        return rename();
      case 4:
        return link();
      case 5:
        return truncate();
      case 6:
        return placed_write();
      case 7:
        return list();
      case 8:
        return read();
      case 9:
        lab_.service().background(0);
        return;
      default:
        return write();
    }
  }

  void check_everything() {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (nodes_[n].directory && (n == 0 || nodes_[n].links > 0)) check_list(n);
      if (!nodes_[n].directory && nodes_[n].links > 0) {
        EXPECT_EQ(lab_.read_all(nodes_[n].handle), nodes_[n].data);
        EXPECT_EQ(lab_.getattr(nodes_[n].handle).attr->links, nodes_[n].links);
      }
      if (n != 0 && nodes_[n].links == 0) expect(lab_.getattr(nodes_[n].handle).status, Status::Stale);
    }
  }

  void remove_everything(std::size_t directory) {
    while (!nodes_[directory].names.empty()) {
      const auto [name, child] = *nodes_[directory].names.begin();
      if (nodes_[child].directory) {
        remove_everything(child);
        ASSERT_TRUE(lab_.rmdir(nodes_[directory].handle, name).ok());
      } else {
        ASSERT_TRUE(lab_.remove(nodes_[directory].handle, name).ok());
      }
      nodes_[directory].names.erase(name);
    }
  }

 private:
  static void expect(Status got, Status wanted) { ASSERT_EQ(got, wanted); }
  std::size_t any(bool directory) {
    for (int tries = 0; tries < 50; ++tries) {
      const std::size_t n = random_() % nodes_.size();
      if (nodes_[n].directory == directory && (n == 0 || nodes_[n].links > 0)) return n;
    }
    return directory ? 0 : nodes_.size();
  }
  std::string any_name() { return numbered("n", random_() % 12); }
  std::uint64_t any_offset() {
    const std::uint64_t edges[] = {0, 1, 4095, 4096, 4097, 65535, 65536, 65537, 500000, 600001};
    return random_() % 2 == 0 ? edges[random_() % std::size(edges)] : random_() % 700000;
  }
  Bytes any_data() {
    return pattern(random_() % 3 == 0 ? random_() % 200000 : random_() % 5000,
                   static_cast<std::uint32_t>(random_()));
  }

  void make(bool directory) {
    const std::size_t d = any(true);
    const std::string name = any_name();
    const Result made =
        directory ? lab_.mkdir(nodes_[d].handle, name) : lab_.create(nodes_[d].handle, name, {}, kRoot, true);
    if (nodes_[d].names.contains(name)) return expect(made.status, Status::Exist);
    ASSERT_TRUE(made.ok());
    nodes_[d].names[name] = nodes_.size();
    nodes_.push_back({.directory = directory, .handle = made.handle, .data = {}, .names = {}, .parent = d});
  }

  void remove() {
    const std::size_t d = any(true);
    const std::string name = any_name();
    const bool as_directory = random_() % 2 == 0;
    const Result gone =
        as_directory ? lab_.rmdir(nodes_[d].handle, name) : lab_.remove(nodes_[d].handle, name);
    const auto at = nodes_[d].names.find(name);
    if (at == nodes_[d].names.end()) return expect(gone.status, Status::NoEnt);
    Node& victim = nodes_[at->second];
    if (victim.directory != as_directory)
      return expect(gone.status, as_directory ? Status::NotDir : Status::IsDir);
    if (!victim.names.empty()) return expect(gone.status, Status::NotEmpty);
    ASSERT_TRUE(gone.ok());
    --victim.links;
    nodes_[d].names.erase(at);
  }

  bool is_within(std::size_t node, std::size_t ancestor) {
    for (; node != ancestor; node = nodes_[node].parent)
      if (node == 0) return false;
    return true;
  }

  void rename() {
    const std::size_t from = any(true);
    const std::size_t to = any(true);
    const std::string old_name = any_name();
    const std::string new_name = any_name();
    const Status status = lab_.rename(nodes_[from].handle, old_name, nodes_[to].handle, new_name).status;
    const auto source = nodes_[from].names.find(old_name);
    if (source == nodes_[from].names.end()) return expect(status, Status::NoEnt);
    const std::size_t moved = source->second;
    if (nodes_[moved].directory && is_within(to, moved)) return expect(status, Status::Inval);
    const auto target = nodes_[to].names.find(new_name);
    if (target != nodes_[to].names.end()) {
      Node& victim = nodes_[target->second];
      if (target->second == moved) return expect(status, Status::Ok);
      if (victim.directory != nodes_[moved].directory) return expect(status, Status::Exist);
      if (!victim.names.empty()) return expect(status, Status::NotEmpty);
      --victim.links;
    }
    ASSERT_EQ(status, Status::Ok);
    nodes_[from].names.erase(source);
    nodes_[to].names[new_name] = moved;
    nodes_[moved].parent = to;
  }

  void link() {
    const std::size_t f = any(false);
    if (f == nodes_.size()) return;
    const std::size_t d = any(true);
    const std::string name = any_name();
    const Status status = lab_.link(nodes_[f].handle, nodes_[d].handle, name).status;
    if (nodes_[d].names.contains(name)) return expect(status, Status::Exist);
    ASSERT_EQ(status, Status::Ok);
    nodes_[d].names[name] = f;
    ++nodes_[f].links;
  }

  void overwrite(Bytes& data, std::uint64_t offset, const Bytes& fresh) {
    if (fresh.empty()) return;
    data.resize(std::max<std::size_t>(data.size(), offset + fresh.size()));
    std::copy(fresh.begin(), fresh.end(), data.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  void write() {
    const std::size_t f = any(false);
    if (f == nodes_.size()) return;
    const Bytes data = any_data();
    const std::uint64_t offset = any_offset();
    ASSERT_TRUE(lab_.write(nodes_[f].handle, offset, data).ok());
    overwrite(nodes_[f].data, offset, data);
  }

  /// Starts a WRITE, runs other operations in between, and commits or abandons it.
  void placed_write() {
    const std::size_t f = any(false);
    if (f == nodes_.size() || depth_ > 3) return;
    const Bytes data = any_data();
    if (data.empty()) return;
    const std::uint64_t offset = any_offset();
    const bool give_up = random_() % 3 == 0;
    const auto count = static_cast<std::uint32_t>(data.size());
    const Bytes head = write_head(nodes_[f].handle, offset, count);
    TestCall call;
    lab_.prepare(call, ulb::kNfs3Write, kRoot);
    call.start(head, count);
    ASSERT_EQ(call.place(lab_.front()), Placement::Sink);
    // An abandoned WRITE may have changed the file already, so it writes the present contents of the file.
    ++depth_;
    if (!give_up) {
      for (auto i = random_() % 4; i > 0; --i) step();
      call.pull(data);
      for (auto i = random_() % 4; i > 0; --i) step_elsewhere(f);
      call.execute(lab_.front());
      const Status status = decode(ulb::kNfs3Write, call.results()).status;
      if (nodes_[f].links == 0) {
        EXPECT_EQ(status, Status::Stale);
      } else {
        EXPECT_EQ(status, Status::Ok);
        overwrite(nodes_[f].data, offset, data);
      }
    } else {
      Bytes same = data;
      const Bytes& there = nodes_[f].data;
      for (std::size_t i = 0; i < same.size() && offset + i < there.size(); ++i) same[i] = there[offset + i];
      call.pull(same);  // bytes beyond the end of the file must never become visible
    }
    --depth_;
    call.release(lab_.front());
  }

  /// Performs a step after data was pulled. It must not change the bytes of that file, because the model does
  /// not track the order of such changes.
  void step_elsewhere(std::size_t f) {
    const std::size_t d = any(true);
    const std::string name = any_name();
    if (nodes_[d].names.contains(name) && nodes_[d].names[name] == f) return;
    if (random_() % 2 == 0) return make(false);
    list();
  }

  void truncate() {
    const std::size_t f = any(false);
    if (f == nodes_.size()) return;
    const std::uint64_t size = any_offset();
    ASSERT_TRUE(lab_.setattr(nodes_[f].handle, {.size = size}).ok());
    nodes_[f].data.resize(size);
  }

  void read() {
    const std::size_t f = any(false);
    if (f == nodes_.size()) return;
    const std::uint64_t offset = any_offset();
    const auto count = static_cast<std::uint32_t>(random_() % 300000);
    const Bytes& data = nodes_[f].data;
    const Result got = lab_.read(nodes_[f].handle, offset, count);
    ASSERT_TRUE(got.ok());
    const std::size_t begin = std::min<std::size_t>(offset, data.size());
    const std::size_t end = std::min<std::size_t>(begin + count, data.size());
    ASSERT_EQ(got.count, end - begin);
    ASSERT_TRUE(
        std::equal(got.data.begin(), got.data.end(), data.begin() + static_cast<std::ptrdiff_t>(begin)));
    ASSERT_EQ(got.eof, end == data.size());
  }

  void list() { check_list(any(true)); }
  void check_list(std::size_t d) {
    std::map<std::string, Handle> expected;
    for (const auto& [name, node] : nodes_[d].names) expected[name] = nodes_[node].handle;
    std::map<std::string, Handle> got;
    for (const DirEntry& entry : lab_.list(nodes_[d].handle, 512))
      got[entry.name] = lab_.lookup(nodes_[d].handle, entry.name).handle;
    ASSERT_TRUE(got == expected);
  }

  Lab& lab_;
  std::mt19937 random_;
  std::vector<Node> nodes_;
  int depth_ = 0;
};

class Nfs3Model : public testing::TestWithParam<unsigned> {};

TEST_P(Nfs3Model, random_operations_agree_with_containers) {
  Lab lab({.arena_bytes = 512 << 20});
  Model model(lab, GetParam());
  for (int i = 0; i < 4000 && !testing::Test::HasFatalFailure(); ++i) model.step();
  model.check_everything();
  model.remove_everything(0);
  lab.settle();
  const Result stat = lab.fsstat(lab.root());
  EXPECT_EQ(stat.numbers[1], stat.numbers[0]) << "blocks are missing";
  EXPECT_EQ(lab.service().file_system().free_bytes(), lab.capacity()) << "free memory is not what there is";
  EXPECT_EQ(stat.numbers[4], 29999u) << "inodes are missing";
  EXPECT_EQ(lab.service().file_system().use(0).used_bytes, 0u);
  EXPECT_TRUE(std::all_of(lab.arena().begin(), lab.arena().begin() + (64 << 20), [](std::byte b) {
    return b == std::byte{0};
  })) << "scrubbed memory is zero";
}

INSTANTIATE_TEST_SUITE_P(Seeds, Nfs3Model, testing::Range(1u, 13u));

}  // namespace
}  // namespace sluice::service::test
