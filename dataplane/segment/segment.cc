// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/segment.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/invariant.h"
#include "dataplane/segment/ownership.h"

namespace sluice::segment {
namespace {

constexpr std::size_t kPageBytes = 4096;

constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}
constexpr std::size_t kDataAt = whole_pages(sizeof(ControlPart));
constexpr std::size_t kBytes = kDataAt + whole_pages(sizeof(DataPart));

std::byte* reserve(int protection) {
  void* const memory =
      ::mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw SetupError(std::string("There is no address space for the shared segment (") +
                     std::strerror(errno) + ").");
  return static_cast<std::byte*>(memory);
}

std::string cannot_be_used(const PartFile& file, const std::string& defect) {
  return "The shared segment " + file.path() + " cannot be used: " + defect +
         ". Stop both planes, remove the file, and start both planes of one release.";
}

std::string was_cut_short(const PartFile& file) {
  const bool control = file.part() == Part::Control;
  return "The shared segment " + file.path() + " was truncated. " +
         (control ? "Stop both planes, remove the file, and start both planes."
                  : "Restart sluice-dataplane, which creates the file again.");
}

template <typename Counters>
void clear(Counters& counters) {
  for (auto& counter : counters)
    if (counter.load(std::memory_order_relaxed) != 0) counter.store(0, std::memory_order_relaxed);
}

/// Returns the last incarnation with a desired state, so that those of a new part come after it.
std::uint32_t last_incarnation(const DesiredStatePart& wanted) {
  std::uint32_t last = 0;
  const auto consider = [&](const std::atomic<std::uint64_t>& word) {
    const std::uint32_t of = incarnation_of(word.load(std::memory_order_relaxed));
    if (of != 0 && (last == 0 || static_cast<std::int32_t>(of - last) > 0)) last = of;
  };
  for (const DesiredStateWords& words : wanted.words) {
    consider(words.course);
    consider(words.grant);
  }
  return last;
}

}  // namespace

Segment::Segment(std::string name) : Segment(std::move(name), PROT_READ) {}

Segment::Segment(std::string name, int protection)
    : name_(std::move(name)),
      memory_(reserve(protection)),
      layout_(control_part(), data_part()),
      control_guard_(memory_, kDataAt),
      data_guard_(memory_ + kDataAt, kBytes - kDataAt) {}

Segment::~Segment() {
  control_guard_.release();
  data_guard_.release();
  ::munmap(memory_, kBytes);
}

ControlPart& Segment::control_part() noexcept {
  return *reinterpret_cast<ControlPart*>(memory_);
}
DataPart& Segment::data_part() noexcept {
  return *reinterpret_cast<DataPart*>(memory_ + kDataAt);
}

PartFile* Segment::file(Part part) noexcept {
  std::optional<PartFile>& file = slot(part);
  static_cast<void>(SLUICE_INVARIANT(!file || file->part() == part, segment_state));
  return file ? &*file : nullptr;
}

void Segment::map(PartFile file) {
  static_cast<void>(SLUICE_INVARIANT(file.descriptor() >= 0, segment_state));
  std::byte* const at = memory_ + (file.part() == Part::Control ? 0 : kDataAt);
  // A process that truncates its own file is not protected from itself.
  if (file.writable())
    guard(file.part()).release();
  else
    guard(file.part()).guard();
  const int protection = file.writable() ? PROT_READ | PROT_WRITE : PROT_READ;
  if (::mmap(at, bytes_of(file.part()), protection, MAP_SHARED | MAP_FIXED, file.descriptor(), 0) ==
      MAP_FAILED)
    throw SetupError(std::string("Cannot map the shared segment (") + std::strerror(errno) + ").");
  slot(file.part()) = std::move(file);
}

Segment::Found Segment::refresh(Part part) {
  const std::optional<PartFile>& known = slot(part);
  static_cast<void>(SLUICE_INVARIANT(!known || known->part() == part, segment_state));
  if (known && known->has_its_name()) {
    if (was_truncated(part)) {
      problem_ = was_cut_short(*known);
      return Found::Unusable;
    }
    find_counters();
    return Found::Same;
  }
  try {
    auto file = PartFile::open(name_, part, PartFile::Access::Read);
    if (!file) return Found::Nothing;
    if (std::string defect = file->defect(); !defect.empty()) {
      problem_ = cannot_be_used(*file, defect);
      return Found::Unusable;
    }
    const Found found = known ? Found::Replaced : Found::Appeared;
    map(std::move(*file));
    find_counters();
    return found;
  } catch (const SetupError& error) {
    problem_ = error.what();
    return Found::Unusable;
  }
}

Owned<Segment> Segment::attach(const std::string& name) {
  Owned<Segment> segment(new Segment(name));
  const Found found = segment->refresh(Part::Control);
  if (found == Found::Unusable) throw SetupError(segment->problem());
  if (found == Found::Nothing)
    throw SetupError("There is no shared segment " + path_of(name, Part::Control) +
                     ". Start sluice-controlplane first, with the same segment name.");
  segment->refresh(Part::Data);
  return segment;
}

Owned<Segment> Segment::open_or_create(const std::string& name) {
  Owned<Segment> segment(new Segment(name));
  for (const Part part : {Part::Control, Part::Data}) {
    auto file = PartFile::open(name, part, PartFile::Access::Write);
    if (!file) {
      file = PartFile::make(name, part);
      file->show();
    }
    if (const std::string defect = file->defect(); !defect.empty())
      throw SetupError(cannot_be_used(*file, defect));
    segment->map(std::move(*file));
  }
  return segment;
}

Owned<Segment> Segment::in_memory() {
  return Owned<Segment>(new Segment("", PROT_READ | PROT_WRITE));
}

void Segment::remove(const std::string& name) noexcept {
  for (const Part part : {Part::Control, Part::Data}) ::unlink(path_of(name, part).c_str());
}

bool Segment::data_plane_runs() const noexcept {
  return data_ && file_lock::taken_by_other(data_->descriptor(), kDataPlaneLock);
}

bool Segment::control_plane_runs(std::uint32_t epoch) const noexcept {
  return control_ && file_lock::taken_by_other(control_->descriptor(), control_plane_lock(epoch));
}

void Segment::name_counters() {
  static_cast<void>(SLUICE_INVARIANT(!data_ || data_->writable(), segment_state));
  SeqLock<CounterNames>& shared = data_part().counter_names;
  const Owned<CounterNames> names(new CounterNames());
  own_counter_names(*names);
  const auto there = shared.read_copy();
  if (there && *there == *names) return;
  for (ReactorData& reactor : data_part().reactors) {
    for (auto& of_class : reactor.transport_counters) clear(of_class);
    clear(reactor.counters);
    clear(reactor.invariant_failures);
    clear(reactor.device_statistics);
    for (UpstreamArea& upstream : reactor.upstreams) clear(upstream.counters);
    clear(reactor.reverse.counters);
  }
  shared.write(*names);
}

void Segment::find_counters() {
  const SeqLock<CounterNames>& shared = data_part().counter_names;
  const std::uint32_t sequence = shared.sequence();
  if (sequence == counter_names_) return;
  const auto names = shared.read_copy();
  if (!names) return;
  layout_.places.follow(*names);
  counter_names_ = sequence;
}

void Segment::begin(Part part) noexcept {
  static_cast<void>(SLUICE_INVARIANT(!slot(part) || slot(part)->writable(), segment_state));
  for (std::uint32_t i = 0; i < kMaxReactors; ++i) {
    ReactorArea& area = layout_.reactors[i];
    if (part == Part::Control) {
      area.commands.begin_to_produce();
      area.punt_down.begin_to_produce();
      area.properties_down.begin_to_produce();
      area.wanted.hints.begin_to_produce();
      area.events.begin_to_consume();
      area.punt_up.begin_to_consume();
      area.properties_up.begin_to_consume();
    } else {
      area.commands.begin_to_consume();
      area.punt_down.begin_to_consume();
      area.properties_down.begin_to_consume();
      area.wanted.hints.begin_to_consume();
      area.events.begin_to_produce();
      area.punt_up.begin_to_produce();
      area.properties_up.begin_to_produce();
      area.incarnations = last_incarnation(control_part().reactors[i].wanted);
    }
  }
}

// --- Parts that their plane truncates

namespace {

/// Maximum of guards per process. A plane has one; tests run several planes in one process.
constexpr std::size_t kMaxGuards = 64;

struct Place {
  std::atomic<bool> taken;
  std::atomic<bool> cut;
  std::atomic<std::uintptr_t> begin;  ///< zero: no memory is guarded
  std::atomic<std::size_t> bytes;
};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::uintptr_t>::is_always_lock_free);

constinit std::array<Place, kMaxGuards> places{};
struct sigaction before {};

Place* place_of(std::uintptr_t address) noexcept {
  for (Place& place : places) {
    const std::uintptr_t begin = place.begin.load(std::memory_order_acquire);  // pairs with guard(): the size
    if (begin != 0 && address - begin < place.bytes.load(std::memory_order_relaxed)) return &place;
  }
  return nullptr;
}

bool read_as_zeros(Place& place) noexcept {
  auto* const memory = reinterpret_cast<void*>(place.begin.load(std::memory_order_relaxed));
  // Called by system call number: the C library does not promise that mmap() is safe in a signal handler, and
  // ThreadSanitizer would report it as a write that races with the reads of other threads.
  if (::syscall(SYS_mmap, memory, place.bytes.load(std::memory_order_relaxed), PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == -1)
    return false;
  place.cut.store(true, std::memory_order_release);  // pairs with was_truncated(): the memory reads as zeros
  return true;
}

/// Signal handler, in the thread that caused the fault. It makes system calls only and must not take a lock
/// or allocate memory.
void on_bus_error(int number, siginfo_t* info, void*) {
  const int error = errno;
  // The kernel sends a positive code for a faulting access; other codes come from kill().
  Place* const place =
      info->si_code > 0 ? place_of(reinterpret_cast<std::uintptr_t>(info->si_addr)) : nullptr;
  if (place == nullptr || !read_as_zeros(*place)) {
    // The access is repeated with the previous handler, and raises the signal again.
    ::sigaction(number, &before, nullptr);
    if (info->si_code <= 0) ::raise(number);
  }
  errno = error;
}

void install_handler() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &before) == 0;
  }();
  if (!installed)
    throw SetupError(std::string("Cannot handle SIGBUS (") + std::strerror(errno) +
                     "), which an access to a truncated segment raises.");
}

}  // namespace

void TruncationGuard::guard() {
  static_cast<void>(SLUICE_INVARIANT(bytes_ % kPageBytes == 0, buffer_bounds));
  install_handler();
  for (std::size_t i = 0; place_ < 0 && i < kMaxGuards; ++i)
    if (!places[i].taken.exchange(true)) place_ = static_cast<int>(i);
  if (place_ < 0) throw SetupError("This process has mapped too many segments of other planes.");
  Place& place = places[static_cast<std::size_t>(place_)];
  static_cast<void>(SLUICE_INVARIANT(place.taken.load(), segment_state));
  place.cut = false;
  place.bytes = bytes_;
  // Pairs with place_of(): the size.
  place.begin.store(reinterpret_cast<std::uintptr_t>(memory_), std::memory_order_release);
}

void TruncationGuard::release() noexcept {
  if (place_ < 0) return;
  Place& place = places[static_cast<std::size_t>(place_)];
  static_cast<void>(SLUICE_INVARIANT(place.taken.load() && place.bytes == bytes_, segment_state));
  place.begin = 0;
  place.taken = false;
  place_ = -1;
}

bool TruncationGuard::was_truncated() const noexcept {
  // Pairs with read_as_zeros(): the memory reads as zeros.
  return place_ >= 0 && places[static_cast<std::size_t>(place_)].cut.load(std::memory_order_acquire);
}

}  // namespace sluice::segment
