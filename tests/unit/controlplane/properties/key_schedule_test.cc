// SPDX-License-Identifier: Apache-2.0
//
// The key schedule and the messages compared with the vectors that deploy/docs/host-authentication.md prints.
// A test in Python recomputes the page from the standards alone.
#include "controlplane/properties/key_schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "tests/unit/controlplane/properties/lab.h"

namespace sluice::properties {
namespace {

/// Lines "    name = hexadecimal digits" of the page. A value may continue in lines that are indented
/// further.
class Page {
 public:
  Page() {
    std::ifstream file(SLUICE_VECTORS_PAGE);
    std::string name;
    for (std::string line; std::getline(file, line);) {
      const auto equals = line.find(" = ");
      const std::size_t indent = line.find_first_not_of(' ');
      if (equals != std::string::npos && indent == kIndent) {
        name = line.substr(kIndent, line.find_last_not_of(' ', equals) + 1 - kIndent);
        values_[name] = line.substr(equals + 3);
      } else if (indent != std::string::npos && indent > kIndent && !name.empty()) {
        values_[name] += line.substr(indent);
      } else {
        name.clear();
      }
    }
  }
  std::string text(const std::string& name) const {
    const auto at = values_.find(name);
    if (at == values_.end()) ADD_FAILURE() << "The page has no " << name;
    return at == values_.end() ? "" : at->second;
  }
  Octets octets(const std::string& name) const {
    const std::string digits = text(name);
    Octets result;
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
      result.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
    return result;
  }

 private:
  static constexpr std::size_t kIndent = 4;
  std::map<std::string, std::string> values_;
};

template <std::size_t N>
Octets octets(const std::array<std::byte, N>& from) {
  return {from.begin(), from.end()};
}

template <int first>
Nonce counted() {
  Nonce nonce;
  for (std::size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<std::byte>(first + i);
  return nonce;
}

const Page& page() {
  static const Page page;
  return page;
}

TEST(KeySchedule, every_value_is_that_of_the_page) {
  const Secret early = early_secret(page().octets("key"));
  EXPECT_EQ(octets(early.bytes), page().octets("early secret"));
  EXPECT_EQ(octets(key_id(early)), page().octets("key id"));
  const Secret handshake = handshake_secret(early);
  EXPECT_EQ(octets(handshake.bytes), page().octets("handshake secret"));

  Octets transcript = page().octets("message 1");
  Octets answer = page().octets("message 2");
  transcript.insert(transcript.end(), answer.begin(), answer.end() - kHashBytes);
  const Hash hellos = hash(transcript);
  EXPECT_EQ(octets(hellos), page().octets("hash of the hellos"));
  const Secret server_key = finished_key(handshake, Role::Server, hellos);
  EXPECT_EQ(octets(server_key.bytes), page().octets("server's finished key"));
  EXPECT_EQ(octets(finished(server_key, hellos)), page().octets("server's Finished"));

  transcript.insert(transcript.end(), answer.end() - kHashBytes, answer.end());
  EXPECT_EQ(octets(hash(transcript)), page().octets("hash of messages 1 and 2"));
  const Secret client_key = finished_key(handshake, Role::Client, hellos);
  EXPECT_EQ(octets(client_key.bytes), page().octets("client's finished key"));
  EXPECT_EQ(octets(finished(client_key, hash(transcript))), page().octets("client's Finished"));
}

TEST(KeySchedule, V2_062_every_message_of_a_handshake_is_that_of_the_page) {
  const PskKey key = psk_key(page().octets("key"));
  const PskKey unknown = psk_key(page().octets("other key"));
  ASSERT_EQ(octets(counted<0x20>()), page().octets("client's nonce"));
  ASSERT_EQ(octets(counted<0x40>()), page().octets("server's nonce"));
  PskClient client(page().text("client's name"), {unknown, key}, counted<0x20>);
  const std::shared_ptr<const PskHosts> hosts(new PskHosts{{page().text("client's name"), {key}}});
  PskServer server(page().text("server's name"), hosts, counted<0x40>);
  const Octets hello = client.begin();
  EXPECT_EQ(hello, page().octets("message 1"));
  const auto answer = server.on_octets(hello);
  EXPECT_EQ(answer.answer, page().octets("message 2"));
  const auto proof = client.on_octets(answer.answer);
  EXPECT_EQ(proof.answer, page().octets("message 3"));
  EXPECT_EQ(server.on_octets(proof.answer).verdict, HostHandshake::Verdict::Accepted);
}

TEST(KeySchedule, nonces_do_not_repeat) {
  EXPECT_NE(random_nonce(), random_nonce());
}

}  // namespace
}  // namespace sluice::properties
