// SPDX-License-Identifier: Apache-2.0
#include "controlplane/properties/psk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/controlplane/properties/lab.h"

namespace sluice::properties {
namespace {

using Verdict = HostHandshake::Verdict;

constexpr std::size_t kHeadBytes = 5;

/// Runs a whole handshake. Returns Accepted if both sides accept.
Verdict judge(HostHandshake& client, HostHandshake& server) {
  const auto answer = server.on_octets(client.begin());
  if (answer.verdict == Verdict::Refused) return Verdict::Refused;
  const auto proof = client.on_octets(answer.answer);
  if (proof.verdict == Verdict::Refused) return Verdict::Refused;
  return server.on_octets(proof.answer).verdict;
}

TEST(Psk, V2_062_both_sides_learn_who_the_other_is) {
  PskClient client = client_of("client.example");
  PskServer server = server_of(hosts_of({{"client.example", kKey}}));
  const auto answer = server.on_octets(client.begin());
  EXPECT_EQ(answer.verdict, Verdict::Pending);
  const auto proof = client.on_octets(answer.answer);
  EXPECT_EQ(proof.verdict, Verdict::Accepted);
  EXPECT_EQ(proof.peer, "gateway");
  const auto end = server.on_octets(proof.answer);
  EXPECT_EQ(end.verdict, Verdict::Accepted);
  EXPECT_EQ(end.peer, "client.example");
  EXPECT_TRUE(end.answer.empty());
}

TEST(Psk, V2_062_only_the_key_of_the_host_that_is_named_is_accepted) {
  const PskHosts hosts = hosts_of({{"a", "0123456789abcdef"}, {"b", "fedcba9876543210"}});
  const auto ends = [&](const std::string& name, const std::string& key) {
    PskClient client = client_of(name, key);
    PskServer server = server_of(hosts);
    return judge(client, server);
  };
  EXPECT_EQ(ends("a", "0123456789abcdef"), Verdict::Accepted);
  EXPECT_EQ(ends("a", "0123456789abcdeg"), Verdict::Refused);  // wrong key
  EXPECT_EQ(ends("c", "0123456789abcdef"), Verdict::Refused);  // unknown host
  EXPECT_EQ(ends("a", "fedcba9876543210"), Verdict::Refused);  // the key of b
  EXPECT_EQ(ends("b", "0123456789abcdef"), Verdict::Refused);  // the name of b with the key of a
  EXPECT_EQ(ends("A", "0123456789abcdef"), Verdict::Refused);
  // The server refuses by itself, and sends no answer.
  for (const char* name : {"a", "c"}) {
    PskServer server = server_of(hosts);
    const auto step = server.on_octets(client_of(name, "0123456789abcdeg").begin());
    EXPECT_EQ(step.verdict, Verdict::Refused) << name;
    EXPECT_TRUE(step.answer.empty());
  }
}

TEST(Psk, V2_062_a_client_refuses_a_server_that_has_another_key_under_the_same_identifier) {
  PskKey forged = key_of("a key that somebody else has");
  forged.id = key_of(kKey).id;
  PskClient client = client_of("client");
  PskServer server = server_of({{"client", {forged}}});
  const auto answer = server.on_octets(client.begin());
  ASSERT_EQ(answer.verdict, Verdict::Pending);
  const auto refused = client.on_octets(answer.answer);
  EXPECT_EQ(refused.verdict, Verdict::Refused);
  EXPECT_TRUE(refused.answer.empty());
}

TEST(Psk, V2_062_a_server_refuses_a_client_that_has_another_key_under_the_same_identifier) {
  PskKey forged = key_of("a key that somebody else has");
  forged.id = key_of(kKey).id;
  // The client ignores the server's proof and answers with a proof from its own key.
  PskClient client("client", {forged}, [] { return Nonce{}; });
  PskServer server = server_of(hosts_of({{"client", kKey}}));
  const Octets hello = client.begin();
  Octets transcript = server.on_octets(hello).answer;
  const auto server_finished = decode_server_message(transcript);
  ASSERT_TRUE(server_finished);
  transcript.insert(transcript.begin(), hello.begin(), hello.end());
  const Hash hellos = hash(std::span(transcript).first(transcript.size() - kHashBytes));
  const auto proof_of = [&](const PskKey& key) {
    return encode_client_finished(
        finished(finished_key(key.handshake, Role::Client, hellos), hash(transcript)));
  };
  PskServer twin = server;
  EXPECT_EQ(server.on_octets(proof_of(forged)).verdict, Verdict::Refused);
  EXPECT_EQ(twin.on_octets(proof_of(key_of(kKey))).verdict, Verdict::Accepted);
}

TEST(Psk, a_key_is_rotated_while_both_are_known) {
  const PskKey old_key = key_of("the key of last year");
  const PskKey new_key = key_of("the key of this year");
  const auto ends = [](std::vector<PskKey> offered, std::vector<PskKey> known) {
    PskClient client("host", std::move(offered));
    PskServer server = server_of({{"host", std::move(known)}});
    return judge(client, server);
  };
  EXPECT_EQ(ends({old_key}, {old_key, new_key}), Verdict::Accepted);
  EXPECT_EQ(ends({new_key}, {old_key, new_key}), Verdict::Accepted);
  EXPECT_EQ(ends({new_key, old_key}, {old_key, new_key}), Verdict::Accepted);
  EXPECT_EQ(ends({new_key, old_key}, {old_key}), Verdict::Accepted);
  EXPECT_EQ(ends({new_key, old_key}, {new_key}), Verdict::Accepted);
  EXPECT_EQ(ends({old_key}, {new_key}), Verdict::Refused);
}

TEST(Psk, the_server_takes_the_first_offered_key_that_it_knows) {
  const PskKey keys[] = {key_of("key number zero of four"), key_of("key number one of four"),
                         key_of("key number two of four"), key_of("key number three of four")};
  const auto choice = [&](std::vector<PskKey> offered, std::vector<PskKey> known) {
    PskClient client("host", std::move(offered));
    PskServer server = server_of({{"host", std::move(known)}});
    return decode_server_message(server.on_octets(client.begin()).answer)->hello.choice;
  };
  EXPECT_EQ(choice({keys[0], keys[1], keys[2], keys[3]}, {keys[3]}), 3);
  EXPECT_EQ(choice({keys[0], keys[1], keys[2], keys[3]}, {keys[3], keys[1]}), 1);
  EXPECT_EQ(choice({keys[2], keys[1]}, {keys[1], keys[2]}), 0);
}

TEST(Psk, a_proof_of_an_earlier_handshake_proves_nothing) {
  const PskHosts hosts = hosts_of({{"c", kKey}});
  PskClient client = client_of("c");
  PskServer first = server_of(hosts);
  const Octets hello = client.begin();
  const Octets answer = first.on_octets(hello).answer;
  const Octets proof = client.on_octets(answer).answer;
  EXPECT_EQ(first.on_octets(proof).verdict, Verdict::Accepted);
  // The client's messages are replayed to the server.
  PskServer second = server_of(hosts);
  EXPECT_EQ(second.on_octets(hello).verdict, Verdict::Pending);
  EXPECT_EQ(second.on_octets(proof).verdict, Verdict::Refused);
  // The server's message is replayed to the client.
  PskClient again = client_of("c");
  again.begin();
  EXPECT_EQ(again.on_octets(answer).verdict, Verdict::Refused);
}

TEST(Psk, a_reflected_proof_proves_nothing) {
  PskServer server = server_of(hosts_of({{"c", kKey}}));
  PskClient client = client_of("c");
  const Octets answer = server.on_octets(client.begin()).answer;
  Octets mirrored(answer.begin(), answer.begin() + kHeadBytes - 1);
  mirrored.push_back(std::byte{3});
  mirrored.insert(mirrored.end(), answer.end() - kHashBytes, answer.end());
  ASSERT_TRUE(decode_client_finished(mirrored));
  EXPECT_EQ(server.on_octets(mirrored).verdict, Verdict::Refused);
  // A reflected hello is not a server's answer.
  PskClient alone = client_of("c");
  EXPECT_EQ(alone.on_octets(alone.begin()).verdict, Verdict::Refused);
}

TEST(Psk, a_host_does_not_take_itself_for_its_server) {
  PskClient client = client_of("both");
  PskServer server = server_of(hosts_of({{"both", kKey}}), "both");
  EXPECT_EQ(client.on_octets(server.on_octets(client.begin()).answer).verdict, Verdict::Refused);
}

TEST(Psk, every_change_and_every_truncation_is_refused) {
  const PskHosts hosts = hosts_of({{"client", kKey}});
  const auto verdict = [&](int message, std::size_t at, int bit) {
    PskClient client("client", {key_of("a key that the server lacks"), key_of(kKey)});
    PskServer server = server_of(hosts, "server");
    const auto spoil = [&](Octets octets, int number) {
      if (number != message) return octets;
      if (bit < 0)
        octets.resize(at);
      else
        octets.at(at) ^= static_cast<std::byte>(1 << bit);
      return octets;
    };
    const auto answer = server.on_octets(spoil(client.begin(), 1));
    if (answer.verdict == Verdict::Refused) return Verdict::Refused;
    const auto proof = client.on_octets(spoil(answer.answer, 2));
    if (proof.verdict == Verdict::Refused) return Verdict::Refused;
    return server.on_octets(spoil(proof.answer, 3)).verdict;
  };
  const std::size_t lengths[] = {0, kHeadBytes + 1 + 6 + kNonceBytes + 1 + 2 * 8,
                                 kHeadBytes + 1 + 6 + kNonceBytes + 1 + kHashBytes, kHeadBytes + kHashBytes};
  for (int message = 1; message <= 3; ++message)
    for (std::size_t at = 0; at < lengths[message]; ++at)
      for (int bit = -1; bit < 8; ++bit)
        EXPECT_EQ(verdict(message, at, bit), Verdict::Refused) << message << ' ' << at << ' ' << bit;
  EXPECT_EQ(verdict(0, 0, 0), Verdict::Accepted);
}

TEST(Psk, a_message_out_of_turn_is_refused_and_ends_it) {
  PskClient client = client_of("c");
  PskServer server = server_of(hosts_of({{"c", kKey}}));
  const Octets hello = client.begin();
  const Octets answer = server.on_octets(hello).answer;
  EXPECT_EQ(server.on_octets(hello).verdict, Verdict::Refused);
  const auto proof = client.on_octets(answer);
  EXPECT_EQ(server.on_octets(proof.answer).verdict, Verdict::Refused);
  EXPECT_EQ(client.on_octets(answer).verdict, Verdict::Refused);
  // Even a server with the key cannot answer a client that has not begun.
  Octets early = encode(ServerHello{.name = "s", .nonce = {}, .choice = 0});
  const Hash hellos = hash(early);
  const Hash proof_of_key = finished(finished_key(key_of(kKey).handshake, Role::Server, hellos), hellos);
  early.insert(early.end(), proof_of_key.begin(), proof_of_key.end());
  PskClient silent = client_of("c");
  EXPECT_EQ(silent.on_octets(early).verdict, Verdict::Refused);
  PskServer fresh = server_of(hosts_of({{"c", kKey}}));
  EXPECT_EQ(fresh.on_octets({}).verdict, Verdict::Refused);
  EXPECT_EQ(fresh.on_octets(hello).verdict, Verdict::Refused);
}

TEST(Psk, a_choice_that_was_not_offered_is_refused) {
  PskClient client = client_of("c");
  client.begin();
  Octets answer = encode(ServerHello{.name = "s", .nonce = {}, .choice = 1});
  answer.resize(answer.size() + kHashBytes);
  ASSERT_TRUE(decode_server_message(answer));
  EXPECT_EQ(client.on_octets(answer).verdict, Verdict::Refused);
}

TEST(Psk, what_cannot_be_told_apart_is_refused_at_the_start) {
  const auto problem = [](PskHosts hosts) -> std::string {
    try {
      authentication_of(std::move(hosts));
      return "";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(problem(hosts_of({{"a", kKey}, {"b", kKey + "."}})), "");
  EXPECT_NE(problem(hosts_of({{"a", kKey}, {"b", kKey}})).find("'a' and 'b' share a key"), std::string::npos);
  EXPECT_NE(problem(hosts_of({{"a", kKey}, {"a", kKey}})).find("'a' has the same key twice"),
            std::string::npos);
  EXPECT_NE(problem(hosts_of({{"gateway", kKey}})).find("is the name of this host"), std::string::npos);
  EXPECT_NE(problem(hosts_of({{"a b", kKey}})).find("printable"), std::string::npos);
  EXPECT_THROW(PskClient("", {key_of(kKey)}), std::runtime_error);
  EXPECT_THROW(PskClient("c", {}), std::runtime_error);
  EXPECT_THROW(PskClient("c", std::vector<PskKey>(kMaxOfferedKeys + 1, key_of(kKey))), std::runtime_error);
}

}  // namespace
}  // namespace sluice::properties
