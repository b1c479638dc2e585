// SPDX-License-Identifier: Apache-2.0
#include "controlplane/events/journal.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "controlplane/events/kinds.h"
#include "controlplane/events/sinks.h"
#include "dataplane/base/setup_error.h"

namespace sluice::events {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

/// Rate limit: a burst, then one event per interval.
struct Rate {
  std::uint64_t burst;
  std::uint64_t interval_ns;
};
constexpr Rate kOfKind{kBurst, kSecondNs / kPerSecond};
constexpr Rate kOfPeer{kBurstOfPeer, kSecondNs / kPerSecondOfPeer};
/// Time after which a full burst is available again.
constexpr std::uint64_t kRestNs = kOfKind.burst * kOfKind.interval_ns;
static_assert(kRestNs >= kOfPeer.burst * kOfPeer.interval_ns);

bool may_take(std::uint64_t spent_until_ns, Rate rate, std::uint64_t now_ns) {
  return std::max(spent_until_ns, now_ns) + rate.interval_ns <= now_ns + rate.burst * rate.interval_ns;
}
void take_one(std::uint64_t& spent_until_ns, Rate rate, std::uint64_t now_ns) {
  spent_until_ns = std::max(spent_until_ns, now_ns) + rate.interval_ns;
}

const std::string* peer_of(const std::vector<Field>& fields) {
  for (const Field& field : fields)
    if (std::string_view(field.name) == kPeerField) return std::get_if<std::string>(&field.value);
  return nullptr;
}

bool is_before(const Event& event, std::uint64_t sequence) {
  return event.sequence < sequence;
}

}  // namespace

struct Journal::State {
  struct Limit {
    std::uint64_t spent_until_ns = 0;
    std::uint64_t suppressed = 0;
    std::uint64_t suppressed_ns = 0;  ///< time of the last suppressed event
  };
  using PeerOfKind = std::pair<const Kind*, std::string>;

  std::mutex mutex{};
  // Guarded by mutex.
  std::array<std::deque<Event>, kCauses> rings{};
  std::map<const Kind*, Limit> limits{};
  std::map<PeerOfKind, std::uint64_t> peers{};  ///< time until which each peer's allowance is used up
  std::uint64_t next = 1;
  std::uint64_t read_to = 1;  ///< highest sequence number that any reader has reached

  /// Takes one event from the allowances of the kind and of the peer, or from neither if one of them is
  /// exhausted. The kind's allowance is checked first, so that a flood from many addresses adds no entries to
  /// `peers`.
  bool take(const Kind& kind, const std::vector<Field>& fields, Limit& limit, std::uint64_t now_ns) {
    if (!may_take(limit.spent_until_ns, kOfKind, now_ns)) return false;
    const std::string* const peer = kind.cause == Cause::Peers ? peer_of(fields) : nullptr;
    if (peer != nullptr) {
      std::uint64_t& spent_until_ns = spent_by(kind, *peer, now_ns);
      if (!may_take(spent_until_ns, kOfPeer, now_ns)) return false;
      take_one(spent_until_ns, kOfPeer, now_ns);
    }
    take_one(limit.spent_until_ns, kOfKind, now_ns);
    return true;
  }

  std::uint64_t& spent_by(const Kind& kind, const std::string& peer, std::uint64_t now_ns) {
    const PeerOfKind key{&kind, peer};
    if (const auto at = peers.find(key); at != peers.end()) return at->second;
    if (peers.size() >= kPeersKnown)
      std::erase_if(peers, [now_ns](const auto& known) { return known.second <= now_ns; });
    return peers[key];
  }
};

Journal::Journal(Log log, Clock clock)
    : log_(std::move(log)), clock_(clock), id_(segment::wall_ns()), state_(make_owned<State>()) {}

Journal::~Journal() = default;

std::size_t Journal::peers_known() {
  const std::lock_guard lock(state_->mutex);
  return state_->peers.size();
}

void Journal::record(const Kind& kind, std::vector<Field> fields) {
  Event event{.wall_ns = segment::wall_ns(), .kind = &kind, .fields = std::move(fields)};
  {
    const std::lock_guard lock(state_->mutex);
    State::Limit& limit = state_->limits[&kind];
    const std::uint64_t now_ns = clock_();
    if (!state_->take(kind, event.fields, limit, now_ns)) {
      ++limit.suppressed;
      limit.suppressed_ns = now_ns;
      statistics_.suppressed.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    event.sequence = state_->next++;
    event.suppressed = std::exchange(limit.suppressed, 0);
    std::deque<Event>& ring = state_->rings[static_cast<std::size_t>(kind.cause)];
    if (ring.size() == kEventsKept) {
      if (ring.front().sequence >= state_->read_to)
        statistics_.unread.fetch_add(1, std::memory_order_relaxed);
      ring.pop_front();
    }
    ring.push_back(event);
    statistics_.recorded.fetch_add(1, std::memory_order_relaxed);
  }
  log_(event);
}

void Journal::poll() {
  std::vector<EventsSuppressed> over;
  {
    const std::lock_guard lock(state_->mutex);
    const std::uint64_t now_ns = clock_();
    for (auto& [kind, limit] : state_->limits)
      if (limit.suppressed > 0 && limit.suppressed_ns + kRestNs <= now_ns)
        over.push_back({kind->name, std::exchange(limit.suppressed, 0)});
  }
  for (const EventsSuppressed& event : over) add(event);
}

Journal::Part Journal::read(std::uint64_t from, std::size_t most) {
  const std::lock_guard lock(state_->mutex);
  from = std::clamp<std::uint64_t>(from, 1, state_->next);
  Part part{.events = {}, .next = state_->next};
  std::array<std::deque<Event>::const_iterator, kCauses> at;
  for (std::size_t i = 0; i < kCauses; ++i)
    at[i] = std::lower_bound(state_->rings[i].begin(), state_->rings[i].end(), from, is_before);
  for (;;) {
    std::size_t first = kCauses;
    for (std::size_t i = 0; i < kCauses; ++i)
      if (at[i] != state_->rings[i].end() && (first == kCauses || at[i]->sequence < at[first]->sequence))
        first = i;
    if (first == kCauses) break;
    if (part.events.size() == most) {
      part.next = most == 0 ? from : part.events.back().sequence + 1;
      break;
    }
    part.events.push_back(*at[first]++);
  }
  part.missed = part.next - from - part.events.size();
  state_->read_to = std::max(state_->read_to, part.next);
  return part;
}

bool Journal::has(std::uint64_t from) {
  const std::lock_guard lock(state_->mutex);
  return state_->next > from;
}

namespace {

constexpr std::size_t kEventsAtATime = 64;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return address;
}

}  // namespace

FileTarget::FileTarget(std::string path) : path_(std::move(path)), file_(open()) {
  if (!file_)
    throw SetupError("Events cannot be written to " + path_ + " (" + std::strerror(errno) +
                     "). Set file in [events] to a file that this user can write, or to \"\" for none.");
}

/// Opens the file. O_NONBLOCK matters if the path is a FIFO.
FileDescriptor FileTarget::open() const {
  return FileDescriptor(
      ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640));
}

void FileTarget::follow_path() {
  struct stat there {};
  struct stat ours {};
  const bool same = ::stat(path_.c_str(), &there) == 0 && ::fstat(file_.get(), &ours) == 0 &&
                    there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
  if (same) return;
  if (FileDescriptor fresh = open()) {
    file_ = std::move(fresh);
    rest_.clear();
  }
}

bool FileTarget::write(const Event& event, std::uint64_t journal) {
  follow_path();
  const std::size_t before = rest_.size();
  std::string line = rest_ + to_json_line(event, journal);
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  const std::size_t gone = written > 0 ? static_cast<std::size_t>(written) : 0;
  // A line of which nothing was written is lost. The rest of a partly written line is kept.
  if (gone <= before) return rest_.erase(0, gone), false;
  rest_ = line.substr(gone);
  return true;
}

JournaldTarget::JournaldTarget(std::string socket)
    : path_(std::move(socket)), socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  if (::access(path_.c_str(), W_OK) != 0)
    throw SetupError("journald in [events] is true, but no journald accepts entries at " + path_ + " (" +
                     std::strerror(errno) + "). Start systemd-journald, or set journald to false.");
}

/// Sends the event to journald. The socket path is resolved for each entry, so that a restarted journald is
/// found.
bool JournaldTarget::write(const Event& event, std::uint64_t) {
  const std::string entry = to_journald(event);
  const sockaddr_un address = address_of(path_);
  return ::sendto(socket_.get(), entry.data(), entry.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                  reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) == static_cast<ssize_t>(entry.size());
}

/// State shared with the tasks, which may hold the last reference.
struct Sink::State {
  std::shared_ptr<Journal> journal;
  std::unique_ptr<Target> target;
  std::atomic<std::uint64_t> lost{0};
  std::uint64_t next = 1;  ///< sequence number of the next event; written by the one task
  std::mutex mutex{};
  std::condition_variable changed{};
  bool ended = false;  ///< guarded by mutex

  /// Writes the next events, at most kEventsAtATime. Returns false if there were none.
  bool copy() {
    const Journal::Part part = journal->read(next, kEventsAtATime);
    std::uint64_t failed = part.missed;
    for (const Event& event : part.events) failed += target->write(event, journal->id()) ? 0 : 1;
    lost.fetch_add(failed, std::memory_order_relaxed);
    return std::exchange(next, part.next) != part.next;
  }
  /// Writes all events.
  void end() {
    while (copy()) continue;
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }
};

Sink::Sink(std::shared_ptr<Journal> journal, std::unique_ptr<Target> target, tasks::Arena& arena)
    : arena_(arena), state_(std::make_shared<State>()) {
  state_->journal = std::move(journal);
  state_->target = std::move(target);
}

void Sink::poll() {
  if (writing_ || !state_->journal->has(state_->next)) return;
  writing_ = arena_.start([this, state = state_] {
    state->copy();
    return tasks::Arena::Done([this] { writing_ = false; });
  });
}

Sink::~Sink() {
  const bool started = arena_.start([state = state_] {
    state->end();
    return tasks::Arena::Done();
  });
  std::unique_lock lock(state_->mutex);
  if (started)
    state_->changed.wait_for(lock, std::chrono::milliseconds(kEndMs), [this] { return state_->ended; });
}

std::uint64_t Sink::lost() const {
  return state_->lost.load(std::memory_order_relaxed);
}

namespace {

Json value_of(const Field& field) {
  return std::visit([](const auto& value) { return Json(value); }, field.value);
}

std::string escaped(const Json& value) {
  return value.dump(-1, Json::Encoding::Ascii);
}

/// Formats the value bare if it needs no quotes, otherwise as a JSON string.
std::string to_word(const Field& field) {
  const auto* text = std::get_if<std::string>(&field.value);
  if (text == nullptr) return escaped(value_of(field));
  const bool bare = !text->empty() && std::all_of(text->begin(), text->end(), [](unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) || std::strchr("._-:/", c) != nullptr;
  });
  return bare && text->find('\0') == std::string::npos ? *text : escaped(*text);
}

/// Appends a field whose value may contain newlines: the name, the length as eight bytes in little-endian
/// order, and the value.
void add_journald(std::string& out, const std::string& name, const std::string& value) {
  out += name + '\n';
  for (int shift = 0; shift < 64; shift += 8)
    out += static_cast<char>(static_cast<std::uint64_t>(value.size()) >> shift & 0xff);
  out += value + '\n';
}

}  // namespace

std::string time_of(std::uint64_t wall_ns) {
  const auto seconds = static_cast<std::time_t>(wall_ns / kSecondNs);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  length += static_cast<std::size_t>(std::snprintf(text.data() + length, text.size() - length, ".%06uZ",
                                                   static_cast<unsigned>(wall_ns % kSecondNs / 1000)));
  return {text.data(), length};
}

std::string to_log_line(const Event& event) {
  std::string line = event.kind->sentence;
  line += std::string(": event=") + event.kind->name;
  for (const Field& field : event.fields) line += std::string(" ") + field.name + '=' + to_word(field);
  if (event.suppressed > 0) line += " suppressed=" + std::to_string(event.suppressed);
  return line;
}

Json to_json(const Event& event) {
  Json fields = Json::object();
  for (const Field& field : event.fields) fields[field.name] = value_of(field);
  Json result = {{"sequence", event.sequence},
                 {"time", time_of(event.wall_ns)},
                 {"severity", kSeverities[static_cast<std::size_t>(event.kind->severity)]},
                 {"event", event.kind->name},
                 {"fields", fields}};
  if (event.suppressed > 0) result["suppressed"] = event.suppressed;
  return result;
}

std::string to_json_line(const Event& event, std::uint64_t journal) {
  Json line = to_json(event);
  line["journal"] = journal;
  return escaped(line) + '\n';
}

std::string to_journald(const Event& event) {
  static constexpr const char* kPriorities[] = {"6", "4", "3"};
  std::string out;
  add_journald(out, "MESSAGE", to_log_line(event));
  add_journald(out, "PRIORITY", kPriorities[static_cast<std::size_t>(event.kind->severity)]);
  add_journald(out, "SYSLOG_IDENTIFIER", "sluice-controlplane");
  add_journald(out, "SLUICE_EVENT", event.kind->name);
  add_journald(out, "SLUICE_SEQUENCE", std::to_string(event.sequence));
  for (const Field& field : event.fields) {
    std::string name = std::string("SLUICE_") + field.name;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const auto* text = std::get_if<std::string>(&field.value);
    add_journald(out, name, text != nullptr ? *text : escaped(value_of(field)));
  }
  return out;
}

}  // namespace sluice::events
