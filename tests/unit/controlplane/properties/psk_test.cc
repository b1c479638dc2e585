// SPDX-License-Identifier: Apache-2.0
#include "controlplane/properties/psk.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/controlplane/properties/lab.h"

namespace sluice::properties {
namespace {

using Role = PskHandshake::Role;
using Verdict = HostHandshake::Verdict;

TEST(Psk, V2_062_both_sides_learn_who_the_other_is) {
  PskHandshake client(Role::Client, identity("client.example"));
  PskHandshake server(Role::Server, identity("gateway"));
  const auto challenge = server.on_octets(client.begin());
  EXPECT_EQ(challenge.verdict, Verdict::Pending);
  const auto response = client.on_octets(challenge.answer);
  EXPECT_EQ(response.verdict, Verdict::Accepted);
  EXPECT_EQ(response.peer, "gateway");
  const auto end = server.on_octets(response.answer);
  EXPECT_EQ(end.verdict, Verdict::Accepted);
  EXPECT_EQ(end.peer, "client.example");
  EXPECT_TRUE(end.answer.empty());
}

TEST(Psk, V2_062_another_key_is_refused_by_either_side) {
  PskHandshake client(Role::Client, identity("c", "0123456789abcdef"));
  PskHandshake server(Role::Server, identity("s", "0123456789abcdeg"));
  const auto challenge = server.on_octets(client.begin());
  const auto refused = client.on_octets(challenge.answer);
  EXPECT_EQ(refused.verdict, Verdict::Refused);
  EXPECT_TRUE(refused.answer.empty());
}

TEST(Psk, what_was_said_before_or_by_the_other_side_proves_nothing) {
  // A proof of an earlier handshake.
  PskHandshake client(Role::Client, identity("c"));
  PskHandshake first(Role::Server, identity("s"));
  const auto response = client.on_octets(first.on_octets(client.begin()).answer);
  PskHandshake second(Role::Server, identity("s"));
  PskHandshake again(Role::Client, identity("c"));
  second.on_octets(again.begin());
  EXPECT_EQ(second.on_octets(response.answer).verdict, Verdict::Refused);

  // The server's own proof, sent back as if it were the client's.
  PskHandshake reflected(Role::Server, identity("s"));
  PskHandshake other(Role::Client, identity("c"));
  Octets challenge = reflected.on_octets(other.begin()).answer;
  Octets mirrored(challenge.begin(), challenge.begin() + 4);
  mirrored.push_back(std::byte{3});
  mirrored.insert(mirrored.end(), challenge.end() - kProofBytes, challenge.end());
  EXPECT_EQ(reflected.on_octets(mirrored).verdict, Verdict::Refused);
}

TEST(Psk, every_change_and_every_truncation_is_refused) {
  const auto judge = [](int message, std::size_t at, bool cut) {
    PskHandshake client(Role::Client, identity("client"));
    PskHandshake server(Role::Server, identity("server"));
    const auto spoil = [&](Octets octets, int number) {
      if (number != message) return octets;
      if (cut)
        octets.resize(std::min(at, octets.size()));
      else if (at < octets.size())
        octets[at] ^= std::byte{0x20};
      return octets;
    };
    const auto challenge = server.on_octets(spoil(client.begin(), 1));
    if (challenge.verdict == Verdict::Refused) return Verdict::Refused;
    const auto response = client.on_octets(spoil(challenge.answer, 2));
    if (response.verdict == Verdict::Refused) return Verdict::Refused;
    return server.on_octets(spoil(response.answer, 3)).verdict;
  };
  const std::size_t lengths[] = {0, 5 + 1 + 6 + kNonceBytes, 5 + 1 + 6 + kNonceBytes + kProofBytes,
                                 5 + kProofBytes};
  for (int message = 1; message <= 3; ++message)
    for (std::size_t at = 0; at < lengths[message]; ++at)
      for (const bool cut : {false, true})
        EXPECT_EQ(judge(message, at, cut), Verdict::Refused) << message << ' ' << at << ' ' << cut;
  EXPECT_EQ(judge(0, 0, false), Verdict::Accepted);
}

TEST(Psk, a_message_out_of_turn_is_refused_and_ends_it) {
  PskHandshake client(Role::Client, identity("c"));
  PskHandshake server(Role::Server, identity("s"));
  const Octets greeting = client.begin();
  server.on_octets(greeting);
  EXPECT_EQ(server.on_octets(greeting).verdict, Verdict::Refused);
  EXPECT_EQ(server.on_octets(greeting).verdict, Verdict::Refused);
  PskHandshake fresh(Role::Server, identity("s"));
  EXPECT_EQ(fresh.on_octets({}).verdict, Verdict::Refused);
}

TEST(Psk, a_key_file_has_to_be_private_and_long_enough) {
  const std::string path = testing::TempDir() + "/sluice-key-" + std::to_string(::getpid());
  const auto write = [&](const std::string& text, mode_t mode) {
    ::unlink(path.c_str());
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
  };
  write("sixteen bytes....\n", 0600);
  EXPECT_EQ(read_key_file(path).size(), 17u);
  write("sixteen bytes....\n", 0640);
  EXPECT_THROW(read_key_file(path), std::runtime_error);
  write("short\n", 0600);
  EXPECT_THROW(read_key_file(path), std::runtime_error);
  ::unlink(path.c_str());
  EXPECT_THROW(read_key_file(path), std::runtime_error);
}

}  // namespace
}  // namespace sluice::properties
