// SPDX-License-Identifier: Apache-2.0
//
// Runs the owner of a memory export and two readers in other reactors, and stops each of them between any two
// stores and any two loads. The test judges every answer. It must fit a state of the object that was made
// before the answer and was not replaced before the call. A later answer must not fit earlier states only.
// With one writer, that is linearizability of one object.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dataplane/service/memory/file_reader.h"
#include "tests/unit/model/fiber.h"
#include "tests/unit/service/memory/plain_calls.h"

namespace sluice {
namespace model {
namespace {

std::mt19937* random_of = nullptr;
constexpr std::uint32_t kPointsPerSwitch = 3;  ///< on average

}  // namespace
}  // namespace model

void on_store_point() noexcept {
  if (model::random_of != nullptr && (*model::random_of)() % model::kPointsPerSwitch == 0)
    model::Fiber::yield();
}

namespace model {
namespace {

using service::memory::FileReader;
using service::memory::InodeNumber;
using service::memory::kLargeBytes;
using service::memory::MemoryService;
using service::memory::Status;
using service::test::Bytes;
using service::test::encoded;
using service::test::handle_in;
using service::test::results_of;

constexpr std::uint32_t kSchedules = 10'000;
constexpr std::uint32_t kSteps = 300;
constexpr std::uint32_t kMaxFileBytes = 6000;  ///< in a small block or in a large one
constexpr std::uint32_t kStepsToEnd = 20;
constexpr std::uint32_t kNames = 3;
constexpr std::uint32_t kReaders = 2;
constexpr std::uint32_t kArenaBytes = 6 * kLargeBytes;

std::uint64_t clock_ns = 1'000'000'000;
std::uint64_t model_clock() noexcept {
  return clock_ns += 1000;
}

/// States of one object in the order in which its only writer made them, and the judgement of what was read.
template <typename State>
class History {
 public:
  explicit History(const State& first) : states_{first} {}

  void begin(const State& next) {
    states_.push_back(next);
    ++begun_;
  }
  void end() { answered_ = begun_; }
  const State& last() const { return states_.back(); }

  struct Read {
    std::size_t oldest;
  };
  Read start_read() const { return {std::max(answered_, seen_)}; }
  /// Returns whether what a read has found fits a state.
  template <typename Fits>
  bool judge(const Read& read, const Fits& fits) {
    for (std::size_t at = read.oldest; at <= begun_; ++at)
      if (fits(states_[at])) return seen_ = std::max(seen_, at), true;
    return false;
  }

 private:
  std::vector<State> states_;
  std::size_t begun_ = 0;
  std::size_t answered_ = 0;
  std::size_t seen_ = 0;  ///< state that an ended read has found; a later one must not find an earlier state
};

/// Service for the owner: a reader's call waits until the owner is between two calls.
class OwnersQueue final : public service::Service {
 public:
  explicit OwnersQueue(MemoryService& owner) : owner_(owner) {}
  const service::Binding& binding() const noexcept override { return owner_.binding(); }
  service::Execution execute(service::Call& call) noexcept override {
    waiting_.push_back(&call);
    wait_for(waiting_, call);
    return service::Execution::Started;
  }
  void release(service::Call& call) noexcept override {
    ending_.push_back(&call);
    wait_for(ending_, call);
  }
  void serve() {
    while (!waiting_.empty()) {
      owner_.execute(*waiting_.front());
      waiting_.erase(waiting_.begin());
    }
    while (!ending_.empty()) {
      owner_.release(*ending_.front());
      ending_.erase(ending_.begin());
    }
  }

 private:
  using Calls = std::vector<service::Call*>;

  static void wait_for(const Calls& calls, const service::Call& call) {
    while (std::find(calls.begin(), calls.end(), &call) != calls.end()) Fiber::yield();
  }

  MemoryService& owner_;
  Calls waiting_;
  Calls ending_;
};

/// A file system with two directories, whose names are in the same buckets of the hash table; one owner, and
/// readers.
class Site {
 public:
  explicit Site(std::uint32_t seed)
      : random_(seed), arena_(kArenaBytes + kLargeBytes), zeros_(kLargeBytes + 64) {
    arena_bytes_ = {
        arena_.data() + kLargeBytes - reinterpret_cast<std::uintptr_t>(arena_.data()) % kLargeBytes,
        kArenaBytes};
    service::memory::MemoryServiceConfig config{.max_files = 16, .handle_key = {std::byte{1}}, .exports = {}};
    config.exports = {{.path = "/", .root_squash = false}};
    owner_ = std::make_unique<MemoryService>(rdma::MemoryRegion{arena_bytes_, rdma::Lkey{1}},
                                             rdma::MemoryRegion{zeros_, rdma::Lkey{2}}, config, &model_clock);
    queue_ = std::make_unique<OwnersQueue>(*owner_);
    for (auto& reader : readers_)
      reader = std::make_unique<FileReader>(*owner_, *queue_,
                                            FileReader::Keys{.data = rdma::Lkey{1}, .zeros = rdma::Lkey{2}});
    make_directories();
  }

  void run() {
    random_of = &random_;
    owner_fiber_.start([this] {
      for (;;) stopping_ ? serve_only() : own_one();
    });
    for (std::uint32_t i = 0; i < kReaders; ++i)
      reader_fibers_[i].start([this, i] {
        for (;;) stopping_ ? Fiber::yield() : read_one(i);
      });
    for (std::uint32_t step = 0, who = 0; step < kSteps && faults_.empty(); ++step) {
      // Mostly the same one runs on, so that another one is far behind.
      if (random_() % 4 == 0) who = random_() % (1 + kReaders);
      (who == 0 ? owner_fiber_ : reader_fibers_[who - 1]).resume();
    }
    random_of = nullptr;
    stopping_ = true;  // every call ends, so that its memory is freed
    for (std::uint32_t turn = 0; turn < kStepsToEnd; ++turn) {
      owner_fiber_.resume();
      for (Fiber& reader : reader_fibers_) reader.resume();
    }
    for (const Bytes& handle : unknown_)
      if (faults_.empty() && file_of(handle) == 0)
        fault("LOOKUP returned a handle that no CREATE has returned");
  }
  const std::string& faults() const { return faults_; }
  std::uint64_t local_answers() const { return local_; }

 private:
  using Names = std::array<std::uint64_t, kNames>;  ///< of each name: zero, or the number of its file
  struct Directory {
    Bytes handle;
    std::array<std::string, kNames> names;
    History<Names> files{Names{}};
  };

  void make_directories() {
    const auto root = owner_->root_handle(0);
    directories_[0].handle.assign(root.begin(), root.end());
    const Bytes made = results_of(*owner_, ulb::kNfs3MkDir, encoded([&](auto& out) {
      out.opaque(root);
      out.string("directory");
      for (int i = 0; i < 6; ++i) out.u32(0);
    }));
    directories_[1].handle = handle_in(made, true);
    const service::memory::FileSystem& fs = owner_->file_system();
    const InodeNumber first = fs.find(root).number;
    const InodeNumber second = fs.find(directories_[1].handle).number;
    for (std::uint32_t name = 0, tried = 0; name < kNames; ++tried) {
      directories_[0].names[name] = std::to_string(name);
      directories_[1].names[name] = std::to_string(tried);
      if (fs.bucket_of(first, directories_[0].names[name]) ==
          fs.bucket_of(second, directories_[1].names[name]))
        ++name;
    }
  }

  // --- The owner

  void serve_only() {
    queue_->serve();
    Fiber::yield();
  }
  void own_one() {
    queue_->serve();
    owner_->background(0);
    Fiber::yield();
    Directory& directory = directories_[random_() % directories_.size()];
    const std::uint32_t name = random_() % kNames;
    switch (random_() % 4) {
      case 0:
        return make(directory, name);
      case 1:
        return remove(directory, name);
      case 2:
        return rename(directory, name, random_() % kNames);
      default:
        return cut(directory, name);
    }
  }

  /// Notes that names change.
  static void begin_names(Directory& directory,
                          std::initializer_list<std::pair<std::uint32_t, std::uint64_t>> changes) {
    Names next = directory.files.last();
    for (const auto& [name, file] : changes) next[name] = file;
    directory.files.begin(next);
  }
  /// Creates a file whose bytes have one value.
  void make(Directory& directory, std::uint32_t name) {
    if (directory.files.last()[name] != 0) return;
    begin_names(directory, {{name, kUnknown}});
    const Bytes made = results_of(*owner_, ulb::kNfs3Create, encoded([&](auto& out) {
      out.opaque(directory.handle);
      out.string(directory.names[name]);
      out.u32(0);
      out.boolean(true);
      out.u32(0666);
      for (int i = 0; i < 5; ++i) out.u32(0);
    }));
    const Bytes handle = handle_in(made, true);
    if (handle.empty()) {  // no space: the file system is as before
      begin_names(directory, {{name, 0}});
      return directory.files.end();
    }
    handles_.push_back(handle);
    values_.push_back(0);
    sizes_.emplace_back(0);
    // Some files have their data in a block that the inode does not refer to directly.
    begins_.push_back(random_() % 2 == 0 ? 0 : service::memory::kDirectBlocks * kLargeBytes);
    begin_names(directory, {{name, handles_.size()}});
    directory.files.end();
    write(handles_.size() - 1, 1 + random_() % kMaxFileBytes);
  }
  void write(std::size_t file, std::uint32_t bytes) {
    values_[file] = static_cast<std::uint8_t>(1 + file % 255);
    sizes_[file].begin(begins_[file] + bytes);
    const Bytes answer = results_of(*owner_, ulb::kNfs3Write,
                                    encoded(
                                        [&](auto& out) {
                                          out.opaque(handles_[file]);
                                          out.u64(begins_[file]);
                                          out.u32(bytes);
                                          out.u32(2);
                                          out.opaque(Bytes(bytes, static_cast<std::byte>(values_[file])));
                                        },
                                        512 + kMaxFileBytes));
    xdr::Reader in(answer);
    if (in.u32() != 0) sizes_[file].begin(0);
    sizes_[file].end();
  }
  void remove(Directory& directory, std::uint32_t name) {
    const std::uint64_t file = directory.files.last()[name];
    if (file == 0) return;
    begin_names(directory, {{name, 0}});
    sizes_[file - 1].begin(kGone);
    results_of(*owner_, ulb::kNfs3Remove, encoded([&](auto& out) {
      out.opaque(directory.handle);
      out.string(directory.names[name]);
    }));
    directory.files.end();
    sizes_[file - 1].end();
  }
  void rename(Directory& directory, std::uint32_t from, std::uint32_t to) {
    const std::uint64_t file = directory.files.last()[from];
    const std::uint64_t replaced = directory.files.last()[to];
    if (file == 0 || from == to) return;
    begin_names(directory, {{from, 0}, {to, file}});
    if (replaced != 0) sizes_[replaced - 1].begin(kGone);
    results_of(*owner_, ulb::kNfs3Rename, encoded([&](auto& out) {
      out.opaque(directory.handle);
      out.string(directory.names[from]);
      out.opaque(directory.handle);
      out.string(directory.names[to]);
    }));
    directory.files.end();
    if (replaced != 0) sizes_[replaced - 1].end();
  }
  void cut(Directory& directory, std::uint32_t name) {
    const std::uint64_t file = directory.files.last()[name];
    if (file == 0 || sizes_[file - 1].last() < 2) return;
    const std::uint64_t begin = begins_[file - 1];
    const std::uint64_t bytes = sizes_[file - 1].last() - std::min(begin, sizes_[file - 1].last());
    const std::uint64_t size = begin + (bytes > 0 ? random_() % bytes : 0);
    const std::uint64_t before = sizes_[file - 1].last();
    sizes_[file - 1].begin(size);
    const Bytes answer = results_of(*owner_, ulb::kNfs3SetAttr, encoded([&](auto& out) {
      out.opaque(handles_[file - 1]);
      for (int i = 0; i < 3; ++i) out.boolean(false);
      out.boolean(true);
      out.u64(size);
      for (int i = 0; i < 3; ++i) out.u32(0);
    }));
    xdr::Reader in(answer);
    if (in.u32() != 0) sizes_[file - 1].begin(before);
    sizes_[file - 1].end();
  }

  // --- The readers

  void read_one(std::uint32_t i) {
    readers_[i]->background(0);
    Fiber::yield();
    if (random_() % 2 == 0 || handles_.empty())
      return look_up(i, directories_[random_() % directories_.size()], random_() % kNames);
    const std::size_t file = random_() % handles_.size();
    return random_() % 2 == 0 ? get_attributes(i, file) : read(i, file);
  }
  void note_local(std::uint32_t i, std::uint64_t given) {
    if (readers_[i]->given_to_owner() == given) ++local_;
  }

  void look_up(std::uint32_t i, Directory& directory, std::uint32_t name) {
    const auto start = directory.files.start_read();
    const std::uint64_t given = readers_[i]->given_to_owner();
    const Bytes answer = results_of(*readers_[i], ulb::kNfs3Lookup, encoded([&](auto& out) {
      out.opaque(directory.handle);
      out.string(directory.names[name]);
    }));
    note_local(i, given);
    const Bytes handle = handle_in(answer, false);
    std::uint64_t found = 0;
    if (!handle.empty()) {
      found = file_of(handle);
      if (found == 0) {
        found = kUnknown;
        unknown_.push_back(handle);
      }
    } else if (static_cast<Status>(xdr::Reader(answer).u32()) != Status::NoEnt) {
      return fault("LOOKUP failed");
    }
    const auto fits = [&](const Names& names) { return names[name] == found; };
    if (!directory.files.judge(start, fits)) fault("LOOKUP found what was not there");
  }

  /// Returns the number of the file that has the handle, or zero if no CREATE has returned it yet.
  std::uint64_t file_of(std::span<const std::byte> handle) const {
    for (std::size_t file = handles_.size(); file > 0; --file)
      if (std::equal(handle.begin(), handle.end(), handles_[file - 1].begin(), handles_[file - 1].end()))
        return file;
    return 0;
  }

  void get_attributes(std::uint32_t i, std::size_t file) {
    const auto start = sizes_[file].start_read();
    const std::uint64_t given = readers_[i]->given_to_owner();
    const Bytes answer =
        results_of(*readers_[i], ulb::kNfs3GetAttr, encoded([&](auto& out) { out.opaque(handles_[file]); }));
    note_local(i, given);
    xdr::Reader in(answer);
    std::uint64_t size = kGone;
    if (static_cast<Status>(in.u32()) == Status::Ok) {
      for (int word = 0; word < 5; ++word) in.u32();
      size = in.u64();
    }
    const auto fits = [&](std::uint64_t state) { return state == size; };
    if (!sizes_[file].judge(start, fits)) fault("GETATTR returned a size that the file never had then");
  }

  void read(std::uint32_t i, std::size_t file) {
    const auto start = sizes_[file].start_read();
    const std::uint64_t given = readers_[i]->given_to_owner();
    const Bytes answer = results_of(*readers_[i], ulb::kNfs3Read, encoded([&](auto& out) {
      out.opaque(handles_[file]);
      out.u64(begins_[file]);
      out.u32(kMaxFileBytes);
    }),
                                    [&] {  // the reply is on its way to a slow client
                                      for (std::uint32_t turn = random_() % 8; turn > 0; --turn) {
                                        readers_[i]->background(0);
                                        Fiber::yield();
                                      }
                                    });
    note_local(i, given);
    xdr::Reader in(answer);
    std::uint64_t size = kGone;
    if (static_cast<Status>(in.u32()) == Status::Ok) {
      for (int word = 0; word < 22; ++word) in.u32();
      size = in.u32();
      in.u32();
      const auto data = in.opaque(kMaxFileBytes);
      if (data.size() != size) fault("READ's count is not the length of its data");
      for (const std::byte byte : data)
        if (byte != static_cast<std::byte>(values_[file]))
          return fault("READ returned bytes of no such file");
    }
    const auto fits = [&](std::uint64_t state) {
      return size == kGone ? state == kGone
                           : state != kGone && state - std::min(state, begins_[file]) == size;
    };
    if (!sizes_[file].judge(start, fits)) fault("READ returned a length that the file never had then");
  }

  void fault(const char* what) { faults_ = what; }

  static constexpr std::uint64_t kGone = ~std::uint64_t{1};
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};  ///< file of a CREATE that is not answered yet

  std::mt19937 random_;
  std::vector<std::byte> arena_;
  std::vector<std::byte> zeros_;
  std::span<std::byte> arena_bytes_;
  std::unique_ptr<MemoryService> owner_;
  std::unique_ptr<OwnersQueue> queue_;
  std::array<std::unique_ptr<FileReader>, kReaders> readers_;
  std::array<Directory, 2> directories_;
  // The members for files are indexed by the number of the file, less one.
  std::vector<Bytes> handles_;
  std::vector<std::uint8_t> values_;
  std::vector<std::uint64_t> begins_;
  std::vector<History<std::uint64_t>> sizes_;
  std::vector<Bytes> unknown_;  ///< handles that were found before their CREATE was answered
  std::string faults_;
  bool stopping_ = false;
  std::uint64_t local_ = 0;
  Fiber owner_fiber_;
  std::array<Fiber, kReaders> reader_fibers_;
};

TEST(FilesModel, answers_of_all_reactors_are_linearizable_at_any_interleaving) {
  const char* const only = std::getenv("SLUICE_MODEL_SEED");
  const std::uint32_t first = only != nullptr ? static_cast<std::uint32_t>(std::atol(only)) : 0;
  const std::uint32_t end = only != nullptr ? first + 1 : kSchedules;
  std::uint64_t local = 0;
  for (std::uint32_t seed = first; seed < end; ++seed) {
    Site site(seed);
    site.run();
    local += site.local_answers();
    ASSERT_EQ(site.faults(), "") << "repeat it with SLUICE_MODEL_SEED=" << seed;
  }
  EXPECT_GT(local, 10 * (end - first)) << "most answers are the readers' own";
}

}  // namespace
}  // namespace model
}  // namespace sluice
