// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/model/sides.h"

#include <gtest/gtest.h>

namespace sluice::model {
namespace {

constexpr std::uint32_t kCommandsPerTurn = 32;
constexpr std::uint32_t kHintsPerTurn = 64;

PeerAddress peer_of(std::uint32_t cm_id) {
  return PeerAddress::from_ipv4(10, 0, 0, static_cast<std::uint8_t>(1 + cm_id % 3));
}

HostName host_of(std::uint32_t incarnation) {
  return HostName("host-" + std::to_string(incarnation));
}

segment::Parameters parameters_of(std::uint32_t incarnation) {
  return {.send_bytes = incarnation,
          .max_segment_bytes = incarnation + 1,
          .max_segments = incarnation + 2,
          .reverse = incarnation + 3};
}

}  // namespace

// --- The reactor

void ModelReactor::start() {
  const bool shown_first = one_in(world_.random, 2);
  if (shown_first) ++world_.layout.data_plane.pid;
  for (std::uint32_t number = 0; number < kPlaces; ++number)
    if (area_.connections[number].sequence() != 0) area_.connections[number].write({});
  if (!shown_first) ++world_.layout.data_plane.pid;
}

void ModelReactor::turn() {
  take_commands();
  std::uint32_t number = 0;
  for (std::uint32_t i = 0; i < kHintsPerTurn && area_.wanted.hints.pop(number); ++i)
    if (number < kPlaces) follow(number);
  follow(next_);
  if (connections_[next_].open && connections_[next_].draining && one_in(world_.random, 3)) close(next_);
  next_ = (next_ + 1) % kPlaces;
  if (world_.settling) return;
  if (one_in(world_.random, 12))
    close(static_cast<std::uint32_t>(world_.random()) % kPlaces);  // the peer disconnects
  if (one_in(world_.random, 60))
    for (std::uint32_t i = 0; i < area_.events.capacity(); ++i)
      area_.events.push(
          {.type = segment::EventType::ConnectionUp, .connection = i % (kPlaces + 1), .peer = {}});
}

bool ModelReactor::send_answer() {
  if (answer_ && area_.events.push(*answer_)) answer_.reset();
  return !answer_;
}

void ModelReactor::take_commands() {
  if (!send_answer()) return;
  segment::Command command;
  for (std::uint32_t i = 0; i < kCommandsPerTurn && area_.commands.pop(command); ++i) {
    answer_ = execute(command);
    if (!send_answer()) return;
  }
}

segment::Event ModelReactor::execute(const segment::Command& command) {
  segment::Event done{.type = segment::EventType::CommandDone,
                      .id = command.id,
                      .status = segment::CommandStatus::UnknownConnection,
                      .cm_id = command.cm_id,
                      .peer = {}};
  if (command.type != segment::CommandType::Accept) return done;
  done.status = segment::CommandStatus::NoRoom;
  for (std::uint32_t number = 0; number < kPlaces; ++number) {
    if (connections_[number].open) continue;
    area_.incarnations.store(area_.incarnations.load() + 1);
    connections_[number] = {.open = true, .incarnation = area_.incarnations.load(), .cm_id = command.cm_id};
    publish(number);
    done.status = segment::CommandStatus::Done;
    done.connection = number;
    done.incarnation = connections_[number].incarnation;
    return done;
  }
  return done;
}

void ModelReactor::publish(std::uint32_t number) {
  const Connection& connection = connections_[number];
  segment::ConnectionInfo info;
  if (connection.open) {
    info.state = connection.established ? segment::ConnectionState::Open : segment::ConnectionState::Opening;
    info.cm_id = connection.cm_id;
    info.incarnation = connection.incarnation;
    info.peer = peer_of(connection.cm_id);
    info.queue_pair = 1;
  }
  area_.use[number].followed_course.store(connection.followed.course);
  area_.use[number].followed_grant.store(connection.followed.grant);
  area_.connections[number].write(info);
}

void ModelReactor::close(std::uint32_t number) {
  if (!connections_[number].open) return;
  connections_[number].open = false;
  publish(number);
  area_.events.push({.type = segment::EventType::ConnectionDown, .connection = number, .peer = {}});
}

void ModelReactor::follow(std::uint32_t number) {
  Connection& connection = connections_[number];
  if (!connection.open) return;
  struct Changes {
    Connection& connection;
    World& world;
    bool ended = false;
    void set_parameters(const segment::Parameters& parameters) noexcept {
      EXPECT_EQ(parameters, parameters_of(connection.incarnation));
      connection.parameters = parameters;
    }
    void admit(const HostName& host) noexcept {
      EXPECT_EQ(host, host_of(connection.incarnation));
      connection.host = host;
    }
    void set_grant(const segment::Grant& grant) noexcept { connection.grant = grant; }
    void set_established() noexcept { connection.established = true; }
    void set_draining(bool on) noexcept { connection.draining = on; }
    void set_traced(bool) noexcept {}
    void end(segment::End, std::uint32_t) noexcept {
      EXPECT_TRUE(world.ghosts[connection.incarnation].ending) << "nobody wanted its end";
      ended = true;
    }
  } changes{connection, world_};
  if (!segment::follow(area_.wanted, number, connection.incarnation, connection.followed, changes)) return;
  if (changes.ended)
    close(number);
  else
    publish(number);
}

// --- The control plane

ModelControlPlane::ModelControlPlane(World& world)
    : world_(world),
      area_(world.area()),
      outbox_(world.layout),
      admission_({.max_connections = kMostConnections,
                  .max_requests_per_second = 1'000'000,
                  .max_requests_per_second_per_client = 1'000'000}),
      book_(admission_),
      watch_(world.layout, 1, kPlaces, *this),
      wanted_(world.area().wanted) {}

void ModelControlPlane::take_over() {
  data_plane_ = world_.layout.data_plane.pid;
  segment::Event event;
  for (std::uint32_t i = 0; i < area_.events.capacity() && area_.events.pop(event); ++i)
    if (event.type == segment::EventType::CommandDone) on_answer(event);
  inherited_ = area_.incarnations.load();
  watch_.look_at_all();
}

void ModelControlPlane::turn() {
  now_ns_ += 1'000'000;
  notice_data_plane();
  segment::Event event;
  for (std::uint32_t i = 0; i < area_.events.capacity() && area_.events.pop(event); ++i) on_event(event);
  watch_.sample_next();
  outbox_.flush();
  if (world_.settling) return;
  if (one_in(world_.random, 3)) admit_a_peer();
  if (one_in(world_.random, 2)) want_something();
  if (one_in(world_.random, 60))
    for (std::uint32_t i = 0; i < area_.commands.capacity(); ++i)
      outbox_.send(0, {.type = segment::CommandType::Reject, .id = 1});
  if (one_in(world_.random, 60))
    for (std::uint32_t i = 0; i < area_.wanted.hints.capacity(); ++i) wanted_.hint(i % (kPlaces + 1));
}

void ModelControlPlane::notice_data_plane() {
  const std::uint32_t pid = world_.layout.data_plane.pid;
  if (pid == data_plane_) return;
  data_plane_ = pid;
  outbox_.forget();
  book_.forget_held();
  std::erase_if(known_, [](const auto& entry) { return !entry.second.made; });
  watch_.look_at_all();
}

void ModelControlPlane::on_event(const segment::Event& event) {
  if (event.type != segment::EventType::CommandDone) return watch_.sample(0, event.connection);
  on_answer(event);
  if (event.status != segment::CommandStatus::Done) {
    book_.failed(0, event.cm_id);
    return;
  }
  watch_.expect(0, event.connection, {.incarnation = event.incarnation, .cm_id = event.cm_id, .peer = {}});
}

void ModelControlPlane::on_answer(const segment::Event& event) {
  const auto at = known_.find(event.cm_id);
  const bool done = event.status == segment::CommandStatus::Done;
  if (at == known_.end() || at->second.made) {
    if (done) end(event.connection, event.incarnation);
    return;
  }
  if (!done) {
    known_.erase(at);
    return;
  }
  at->second = {.made = true, .number = event.connection, .incarnation = event.incarnation};
}

void ModelControlPlane::on_appeared(std::uint32_t, std::uint32_t number, const cm::SeenConnection& seen) {
  book_.appeared(0, seen);
  if (known_.count(seen.cm_id) != 0) return;
  if (static_cast<std::int32_t>(seen.incarnation - inherited_) > 0) return end(number, seen.incarnation);
  if (wanted_.course(number, seen.incarnation).end == segment::End::No)
    known_[seen.cm_id] = {.made = true, .number = number, .incarnation = seen.incarnation};
}

void ModelControlPlane::forget(const cm::SeenConnection& seen) {
  const auto at = known_.find(seen.cm_id);
  if (at != known_.end() && at->second.made && at->second.incarnation == seen.incarnation) known_.erase(at);
}

void ModelControlPlane::on_gone(std::uint32_t, std::uint32_t, const cm::SeenConnection& seen) {
  book_.gone(seen);
  forget(seen);
}

void ModelControlPlane::on_missed(std::uint32_t, std::uint32_t, const cm::SeenConnection& expected) {
  book_.failed(0, expected.cm_id);
  forget(expected);
}

void ModelControlPlane::admit_a_peer() {
  const std::uint32_t cm_id = world_.next_cm_id++;
  if (admission_.judge(peer_of(cm_id), kMostConnections, now_ns_) != policy::Verdict::Admit) return;
  book_.admitted(0, cm_id, peer_of(cm_id));
  known_[cm_id] = {};
  outbox_.send(0, {.type = segment::CommandType::Accept, .id = 1, .cm_id = cm_id});
}

void ModelControlPlane::end(std::uint32_t number, std::uint32_t incarnation) {
  Ghost& ghost = world_.ghosts[incarnation];
  ghost.ending = true;
  wanted_.end(number, incarnation, segment::End::PeerGone);
  ghost.ended = true;
}

void ModelControlPlane::want_something() {
  for (const auto& [cm_id, known] : known_) {
    if (!known.made || !one_in(world_.random, 2)) continue;
    const auto [made, number, incarnation] = known;
    Ghost& ghost = world_.ghosts[incarnation];
    switch (world_.random() % 7) {
      case 0:
        return end(number, incarnation);
      case 1:
        ghost.established.reset();
        wanted_.established(number, incarnation);
        ghost.established = true;
        return;
      case 2:
        wanted_.drain(number, incarnation, one_in(world_.random, 2));
        return;
      case 3:
        wanted_.admit(number, incarnation, host_of(incarnation), segment::kKeepClass);
        return;
      case 4:
        wanted_.parameters(number, incarnation, parameters_of(incarnation));
        return;
      default: {
        const segment::Grant grant{.credits = static_cast<std::uint32_t>(1 + world_.random() % 64),
                                   .client_class = static_cast<std::uint32_t>(world_.random()) % 4};
        ghost.grant.reset();
        wanted_.grant(number, incarnation, grant);
        ghost.grant = grant;
        return;
      }
    }
  }
}

std::set<std::uint32_t> ModelControlPlane::made() const {
  std::set<std::uint32_t> incarnations;
  for (const auto& [cm_id, known] : known_)
    if (known.made) incarnations.insert(known.incarnation);
  return incarnations;
}

std::size_t ModelControlPlane::unmade() const {
  return known_.size() - made().size();
}

}  // namespace sluice::model
