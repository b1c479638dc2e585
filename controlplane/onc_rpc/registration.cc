// SPDX-License-Identifier: Apache-2.0
//
// Registration with rpcbind, the messages of rpcbind, and the poll loop of services.
#include "controlplane/onc_rpc/registration.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "controlplane/onc_rpc/poll_thread.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/heartbeat.h"

namespace sluice::onc_rpc {
namespace {

FileDescriptor wake_event() {
  FileDescriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0)
    throw SetupError("No file descriptor is left for a thread's wake-up. Raise LimitNOFILE.");
  return wake;
}

}  // namespace

struct PollThread::Running {
  enum class Phase : std::uint8_t {
    Serving,
    Detaching,  ///< the attachment's destructor waits; finish() has not been called
    Finishing,  ///< finish() has been called
  };
  struct Attached {
    PolledService* service = nullptr;
    Phase phase = Phase::Serving;
  };

  void run() {
    PollSet set;
    while (next_iteration()) {
      set.clear();
      const std::size_t woken = set.add(wake.get(), POLLIN);
      for (PolledService* const service : services) service->prepare(set);
      set.wait(segment::monotonic_ns());
      eventfd_t ignored = 0;
      if (set.events(woken) != 0) ::eventfd_read(wake.get(), &ignored);
      for (PolledService* const service : services) service->poll(set, segment::monotonic_ns());
    }
  }

  /// Updates `services`. Returns false if the thread ends.
  bool next_iteration() {
    const std::lock_guard lock(mutex);
    for (Attached& one : attached) {
      if (one.phase != Phase::Detaching) continue;
      one.service->finish(segment::monotonic_ns());
      one.phase = Phase::Finishing;
    }
    const auto has_finished = [](const Attached& one) {
      return one.phase == Phase::Finishing && one.service->finished();
    };
    if (std::erase_if(attached, has_finished) > 0) detached.notify_all();
    services.clear();
    for (const Attached& one : attached) services.push_back(one.service);
    return !stop;
  }

  void attach(PolledService& service) {
    const std::lock_guard lock(mutex);
    attached.push_back({.service = &service});
    ::eventfd_write(wake.get(), 1);
  }

  void detach(const PolledService& service) {
    std::unique_lock lock(mutex);
    const auto find_it = [&] {
      return std::find_if(attached.begin(), attached.end(),
                          [&](const Attached& one) { return one.service == &service; });
    };
    if (!SLUICE_INVARIANT(find_it() != attached.end(), list_membership)) return;
    find_it()->phase = Phase::Detaching;
    ::eventfd_write(wake.get(), 1);
    detached.wait(lock, [&] { return find_it() == attached.end(); });
  }

  void end() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    ::eventfd_write(wake.get(), 1);
    thread.join();
  }

  const FileDescriptor wake = wake_event();  ///< wakes the thread from its wait
  std::mutex mutex;
  std::condition_variable detached;
  std::vector<Attached> attached;        ///< guarded by mutex
  bool stop = false;                     ///< guarded by mutex
  std::vector<PolledService*> services;  ///< services of this iteration; used by the thread only
  std::thread thread{[this] { run(); }};
};

PollThread::PollThread(const char* name) : running_(make_owned<Running>()) {
  ::pthread_setname_np(running_->thread.native_handle(), name);
}

PollThread::~PollThread() {
  running_->end();
}

PollThread::Attachment::Attachment(PollThread& thread, PolledService& service)
    : thread_(thread), service_(service) {
  thread_.running_->attach(service_);
}

PollThread::Attachment::~Attachment() {
  thread_.running_->detach(service_);
}

namespace {

constexpr std::uint32_t kMaxText = 1024;  ///< limit for each text of a registration

Server unix_server(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  Server server;
  std::memcpy(&server.address, &address, sizeof address);
  server.address_bytes = sizeof address;
  return server;
}

const Registration* find(const std::vector<Registration>& known, const Registration& own) {
  const auto at = std::find_if(known.begin(), known.end(), [&](const Registration& one) {
    return one.program == own.program && one.version == own.version && one.netid == own.netid;
  });
  return at == known.end() ? nullptr : &*at;
}

}  // namespace

void encode(xdr::Writer& writer, const Registration& registration) {
  writer.words(registration.program, registration.version);
  writer.string(registration.netid);
  writer.string(registration.address);
  writer.string(registration.owner);
}

std::optional<std::vector<Registration>> decode_registrations(xdr::Reader& reader) {
  std::vector<Registration> all;
  while (reader.boolean()) {
    Registration& one = all.emplace_back();
    one.program = reader.u32();
    one.version = reader.u32();
    one.netid = reader.string(kMaxText);
    one.address = reader.string(kMaxText);
    one.owner = reader.string(kMaxText);
  }
  return reader.ok() ? std::optional(std::move(all)) : std::nullopt;
}

std::uint16_t port_of_universal(std::string_view address) {
  std::uint32_t port = 0;
  for (const unsigned shift : {0u, 8u}) {
    const std::size_t dot = address.rfind('.');
    if (dot == std::string_view::npos) return 0;
    std::uint8_t byte = 0;
    const char* const end = address.data() + address.size();
    const auto [rest, error] = std::from_chars(address.data() + dot + 1, end, byte);
    if (error != std::errc{} || rest != end) return 0;
    port |= std::uint32_t{byte} << shift;
    address = address.substr(0, dot);
  }
  return static_cast<std::uint16_t>(port);
}

Registrar::Registrar(std::vector<Registration> own, const std::string& socket_path,
                     ServerStatistics& statistics, ServiceName service, Served served)
    : own_(std::move(own)),
      statistics_(statistics),
      service_(std::move(service)),
      served_(std::move(served)) {
  rpcbind_.set_server(unix_server(socket_path));
}

void Registrar::prepare(PollSet& set) {
  rpcbind_.prepare(set);
  if (state_ == State::Resting && !served_) set.wake_at(next_ns_);
  if (state_ == State::Resting && served_) set.wake_at(now_ns_ + kServedCheckNs);
  if (state_ == State::Withdrawing && ending_) set.wake_at(deadline_ns_);
}

void Registrar::poll(const PollSet& set, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  rpcbind_.poll(set, now_ns);
  if (state_ == State::Withdrawing && ending_ && now_ns >= deadline_ns_) state_ = State::Gone;
  if (state_ != State::Resting) return;
  const bool served = is_served();
  if (served && now_ns >= next_ns_)
    state_ = State::Asking;
  else if (!served && asked_)
    state_ = State::Withdrawing;
  else
    return;
  asked_ = true;
  ask(now_ns);
}

void Registrar::withdraw(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  deadline_ns_ = now_ns + kWithdrawNs;
  ending_ = true;
  const bool resting = state_ == State::Resting;
  if (resting && !asked_) return have_withdrawn();  // an equal address may belong to another server
  state_ = State::Withdrawing;
  if (resting) ask(now_ns);
}

/// Ends a withdrawal, whether rpcbind has accepted it or not.
void Registrar::have_withdrawn() {
  state_ = ending_ ? State::Gone : State::Resting;
  outcome_ = Outcome::Unknown;
  next_ns_ = 0;
  removing_ = asked_ = false;
}

void Registrar::ask(std::uint64_t now_ns) {
  rpcbind_.call(kDumpAddresses, {}, false, now_ns, now_ns + kRegistrationNs,
                [this](Failure failure, xdr::Reader results) { found(failure, results); });
}

void Registrar::found(Failure failure, xdr::Reader results) {
  const auto known = failure == Failure::None ? decode_registrations(results) : std::nullopt;
  if (!known) {
    if (state_ == State::Withdrawing) return have_withdrawn();
    settle(Outcome::NoRpcbind);
    return;
  }
  if (state_ == State::Withdrawing)
    remove_own(*known);
  else
    register_missing(*known);
}

void Registrar::register_missing(const std::vector<Registration>& known) {
  refused_ = false;
  foreign_.clear();
  for (const Registration& own : own_) {
    const Registration* other = find(known, own);
    if (other == nullptr) {
      call(kSetAddress, own);
    } else if (other->address != own.address) {
      foreign_ += (foreign_.empty() ? "" : ", ") + other->netid + ' ' + other->address;
      if (outcome_ != Outcome::Foreign) count(statistics_.registrations_foreign);
    }
  }
  if (calls_ == 0) called(true);
}

void Registrar::remove_own(const std::vector<Registration>& known) {
  removing_ = true;
  for (const Registration& own : own_) {
    const Registration* registered = find(known, own);
    if (registered != nullptr && registered->address == own.address) call(kUnsetAddress, own);
  }
  if (calls_ == 0) have_withdrawn();
}

void Registrar::call(const Procedure& procedure, const Registration& registration) {
  std::array<std::byte, 512> room;
  xdr::Writer arguments(room);
  encode(arguments, registration);
  ++calls_;
  rpcbind_.call(procedure, arguments.written(), false, now_ns_, now_ns_ + kRegistrationNs,
                [this](Failure failure, xdr::Reader results) {
                  --calls_;
                  called(failure == Failure::None && results.boolean());
                });
}

/// Counts a reply of rpcbind. The last one ends the round.
void Registrar::called(bool accepted) {
  refused_ |= !accepted;
  if (calls_ > 0) return;
  if (state_ == State::Asking)
    settle(!foreign_.empty() || refused_ ? Outcome::Foreign : Outcome::Registered);
  else if (removing_)
    have_withdrawn();
  else
    ask(now_ns_);  // the withdrawal began during registration
}

void Registrar::settle(Outcome outcome) {
  state_ = State::Resting;
  next_ns_ = now_ns_ + kRegisterAgainNs;
  if (std::exchange(outcome_, outcome) == outcome) return;
  if (outcome == Outcome::Registered)
    log::info("{} is registered with rpcbind", service_.name);
  else if (outcome == Outcome::NoRpcbind)
    log::info("{} is not registered, because no rpcbind answers on this host", service_.name);
  else if (!foreign_.empty())
    log::warn("Another {} server ({}) is registered with rpcbind and stays registered. {}", service_.name,
              foreign_, service_.if_other);
  else
    log::warn("rpcbind refuses to register {}", service_.name);
}

}  // namespace sluice::onc_rpc
