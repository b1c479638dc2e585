// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/connection_keeper.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <cerrno>

#include "controlplane/cm/kernel_connections.h"
#include "controlplane/cm/punted_connections.h"

namespace sluice::cm {
namespace {

bool process_exists(std::uint32_t pid) {
  return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
}

}  // namespace

ConnectionKeeper::ConnectionKeeper(segment::Layout& layout, const config::Config& config,
                                   const policy::CreditKeeper& credits)
    : layout_(layout),
      config_(config),
      admission_(config.admission_limits()),
      context_{layout, config, credits, admission_, statistics_} {
  if (config.block.driver == segment::Driver::SoftRoce)
    managed_ = std::make_unique<PuntedConnections>(context_);
  if (config.block.driver == segment::Driver::Verbs) managed_ = std::make_unique<KernelConnections>(context_);
}

void ConnectionKeeper::rebuild() {
  admission_.forget_all();
  reaping_.clear();
  for (std::uint32_t reactor = 0; reactor < config_.block.reactors; ++reactor)
    for (const auto& entry : layout_.reactors[reactor].connections) {
      const auto info = entry.read();
      if (info && info->state != segment::ConnectionState::Unused && info->outgoing == 0)
        admission_.connected(info->peer);
    }
  if (managed_) managed_->restore();
}

bool ConnectionKeeper::command(std::uint32_t reactor, segment::Command command) {
  command.id = next_command_++;
  if (layout_.reactors[reactor].commands.push(command)) return true;
  ++statistics_.commands_lost;
  return false;
}

bool ConnectionKeeper::poll(std::uint64_t now_ns) {
  bool any = managed_ && managed_->poll(now_ns);
  for (std::uint32_t reactor = 0; reactor < config_.block.reactors; ++reactor) {
    segment::Event event;
    auto& events = layout_.reactors[reactor].events;
    for (std::uint32_t i = 0; i < events.capacity() && events.pop(event); ++i) {
      any = true;
      switch (event.type) {
        case segment::EventType::ConnectRequest:
          on_request(reactor, event, now_ns);
          break;
        case segment::EventType::ConnectWanted:
          if (managed_) managed_->on_connect_wanted(reactor, event, now_ns);
          break;
        case segment::EventType::ConnectionUp:
          spdlog::debug("Connection {} of reactor {} is up", event.connection, reactor);
          if (managed_) managed_->on_connection_up(event, now_ns);
          break;
        case segment::EventType::ConnectionDown:
          if (event.outgoing == 0) admission_.disconnected(event.peer);
          spdlog::debug("Connection {} of reactor {} is down (reason {})", event.connection, reactor,
                        event.reason);
          if (managed_) managed_->on_connection_down(reactor, event, now_ns);
          break;
        case segment::EventType::CommandDone:
          if (managed_) managed_->on_command_done(reactor, event, now_ns);
          if (event.status == segment::CommandStatus::Done) break;
          spdlog::debug("Command {} of reactor {} failed (status {})", event.id, reactor,
                        static_cast<std::uint32_t>(event.status));
          rebuild();  // an admitted connection may have failed to open
          break;
      }
    }
  }
  return any;
}

void ConnectionKeeper::on_request(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) {
  policy::Verdict verdict{};
  auto accept =
      judge(context_, reactor, event.peer, {event.private_data, event.private_data_bytes}, verdict, now_ns);
  if (!accept) {
    command(reactor, {.type = segment::CommandType::Reject, .cm_id = event.cm_id});
    return;
  }
  accept->type = segment::CommandType::Accept;
  accept->cm_id = event.cm_id;
  if (!command(reactor, *accept)) admission_.disconnected(event.peer);
}

void ConnectionKeeper::reap() {
  std::set<std::uint64_t> still_dead;
  for (std::uint32_t reactor = 0; reactor < config_.block.reactors; ++reactor)
    for (const auto& entry : layout_.reactors[reactor].connections) {
      const auto info = entry.read();
      if (!info || info->state == segment::ConnectionState::Unused || info->peer_pid == 0 ||
          process_exists(info->peer_pid))
        continue;
      const std::uint64_t key = std::uint64_t{reactor} << 32 | info->cm_id;
      if (reaping_.count(key) == 0) {
        if (!command(reactor, {.type = segment::CommandType::Abandon, .cm_id = info->cm_id})) continue;
        ++statistics_.reaped;
      }
      still_dead.insert(key);
    }
  reaping_ = std::move(still_dead);
}

}  // namespace sluice::cm
