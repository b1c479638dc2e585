// SPDX-License-Identifier: Apache-2.0
//
// Changes that are saved next to a configuration: how they are read with it, and how they are written.
#include "controlplane/config/config.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "controlplane/config/changes.h"
#include "controlplane/config/keys.h"

namespace sluice {
namespace {

using Paths = std::vector<std::string>;

segment::ExportConfig an_export(const std::string& keys) {
  return config::parse_export("[[export]]\n" + keys, config::parse("[[export]]\npath = \"/none\"\n", "f"));
}

class Saved : public testing::Test {
 protected:
  Saved() {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    configure("[[export]]\npath = \"/a\"\nclients = []\n[[export]]\npath = \"/b\"\nclients = []\n");
  }
  ~Saved() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return folder_ + "/sluice.toml"; }
  std::string saved_file() const { return folder_ + "/saved.toml"; }
  void configure(const std::string& text) {
    std::ofstream(file()) << "saved_changes = \"" + saved_file() + "\"\n" + text;
  }
  void write_saved(const std::string& text) { std::ofstream(saved_file()) << text; }
  std::string saved_text() const {
    std::ostringstream text;
    text << std::ifstream(saved_file()).rdbuf();
    return text.str();
  }
  config::Config load() const { return config::load_file(file()); }
  Paths paths() const {
    Paths found;
    const config::Config config = load();
    for (const auto& entry : config.block.exports)
      if (entry.in_use != 0) found.emplace_back(entry.path);
    return found;
  }
  std::string defects() const {
    try {
      load();
    } catch (const config::ConfigError& error) {
      return error.what();
    }
    return {};
  }
  void save(const config::Change& change) const { config::save_change(change, load()); }
  std::string problem_of(const config::Change& change, const config::Config& running) const {
    try {
      config::save_change(change, running);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return {};
  }

  std::string folder_ = "/tmp/sluice-saved-test-XXXXXX";
};

TEST_F(Saved, without_a_file_nothing_is_saved) {
  EXPECT_EQ(paths(), (Paths{"/a", "/b"}));
  EXPECT_FALSE(load().saved.drain);
  EXPECT_FALSE(std::filesystem::exists(saved_file())) << "reading makes none";
}

TEST_F(Saved, exports_come_beside_those_of_the_configuration_or_in_their_place) {
  write_saved("[[export]]\npath = \"/c\"\n[[export]]\npath = \"/a\"\nread_only = true\n");
  EXPECT_EQ(paths(), (Paths{"/b", "/c", "/a"}));
  EXPECT_EQ(load().block.exports[2].read_only, 1u);
  EXPECT_EQ(config::describe(load().saved),
            (Json{{"drain", false}, {"export", {"/c", "/a"}}, {"removed_exports", Json::array()}}));
}

TEST_F(Saved, exports_of_the_configuration_are_removed) {
  write_saved("removed_exports = [\"/a\", \"/of-an-older-configuration\"]\n");
  EXPECT_EQ(paths(), Paths{"/b"});
  configure("");  // the default export exists then
  write_saved("removed_exports = [\"/export\"]\n");
  EXPECT_EQ(paths(), Paths{});
}

TEST_F(Saved, defects_are_told_with_the_file_the_line_and_what_to_do) {
  const auto defect_of = [this](const std::string& text) {
    write_saved(text);
    return defects();
  };
  const std::string at = saved_file() + ":";
  const std::string broken = defect_of("drain = true\n[[export\n");
  EXPECT_EQ(broken.find(at + "2: "), 0u) << broken;
  EXPECT_NE(broken.find(" Correct this line, or move the file away, which discards what was saved.\n"),
            std::string::npos)
      << broken;
  EXPECT_EQ(defect_of("drain = 3\n"), at + "1: drain has to be true or false.\n");
  EXPECT_NE(
      defect_of("log_level = \"info\"\n").find(at + "1: The key 'log_level' is unknown. Allowed here are "),
      std::string::npos);
  EXPECT_EQ(defect_of("[[export]]\npath = \"/b/c\"\n"),
            at + "1: The exports '/b/c' and '/b' overlap. Rename one, so that neither lies in the other.\n");
  EXPECT_EQ(defect_of("removed_exports = [\"/b\"]\n[[export]]\npath = \"/b/c\"\n"), "");
  EXPECT_EQ(
      defect_of("removed_exports = [\"/c\"]\n[[export]]\npath = \"/c\"\n"),
      at + "1: There is an [[export]] with path '/c' in this file, too. Remove it from one of the two.\n");
  EXPECT_EQ(defect_of("[[export]]\npath = \"/c\"\n[[export]]\npath = \"/c\"\n"),
            at + "3: There is an export '/c' already. Remove one.\n");
  EXPECT_EQ(defect_of("removed_exports = \"/c\"\n"),
            at + "1: removed_exports has to be a list of paths, as in [\"/export\"].\n");
  EXPECT_EQ(defect_of("removed_exports = [7]\n"),
            at + "1: removed_exports takes paths of exports, which start with '/'.\n");
  EXPECT_NE(defect_of("[[export]]\npath = \"/c\"\nhosts = [\"h\"]\n").find(at + "3: hosts names 'h'"),
            std::string::npos);
  std::string many;
  for (int i = 0; i < 31; ++i) many += "[[export]]\npath = \"/x" + std::to_string(i) + "\"\n";
  EXPECT_EQ(defect_of(many), at + "1: Together with those of the configuration there are 33 exports. Remove "
                                  "some, because the limit is 32.\n");
  EXPECT_EQ(defect_of("\xff\n").find("The configuration cannot be read: " + at + "1: "), 0u);
  configure("[[upstream]]\nname = \"u\"\naddress = \"192.0.2.1\"\nprograms = [\"nfs3\"]\n");
  EXPECT_EQ(defect_of("[[export]]\npath = \"/c\"\n"),
            at + "1: NFS version 3 is forwarded to another server. Remove the exports here.\n");
}

TEST_F(Saved, what_is_written_is_what_is_read) {
  const std::string keys =
      "path = \"/c\\\"\xc3\xa9\"\nread_only = true\nroot_squash = false\nall_squash = true\nanonuid = "
      "4294967295\n"
      "anongid = 7\nquota_mib = 9\nclients = [\"192.0.2.0/24\", \"2001:db8::/32\", \"10.1.2.3\"]\n";
  const config::SavedChanges before{
      .exports = {an_export(keys), an_export("path = \"/d\"\n")}, .removed_exports = {"/a"}, .drain = true};
  config::Config after = config::parse("", "f");
  config::add_saved_changes(after, config::to_toml(before), "g");
  EXPECT_EQ(config::describe(after.saved), config::describe(before));
  config::Config plain = config::parse("[[export]]\n" + keys, "f");
  EXPECT_EQ(config::describe(after)["export"][0], config::describe(plain)["export"][0]);
  EXPECT_EQ(config::to_toml(after.saved), config::to_toml(before));
}

TEST_F(Saved, changes_follow_one_another) {
  save(an_export("path = \"/c\"\n"));
  EXPECT_EQ(paths(), (Paths{"/a", "/b", "/c"}));
  save(an_export("path = \"/a\"\nread_only = true\n"));
  EXPECT_EQ(paths(), (Paths{"/b", "/c", "/a"}));
  save(config::RemovedExport{"/a"});
  save(config::RemovedExport{"/c"});
  EXPECT_EQ(paths(), Paths{"/b"});
  EXPECT_EQ(load().saved.removed_exports, Paths{"/a"}) << "the other one is nowhere any more";
  save(config::Drain{true});
  EXPECT_TRUE(load().saved.drain);
  save(an_export("path = \"/a\"\n"));
  EXPECT_EQ(paths(), (Paths{"/b", "/a"}));
  save(config::Drain{false});
  EXPECT_FALSE(load().saved.drain);
  EXPECT_EQ(saved_text().rfind("# Written by sluice-controlplane for 'sluicectl ... --save'.", 0), 0u);
}

TEST_F(Saved, what_people_have_written_into_the_file_stays) {
  write_saved("# mine\n[[export]]\npath = \"/mine\"\n");
  save(config::Drain{false});
  EXPECT_EQ(saved_text().rfind("# mine", 0), 0u) << "nothing had to be written";
  save(config::Drain{true});
  EXPECT_EQ(paths(), (Paths{"/a", "/b", "/mine"}));
}

TEST_F(Saved, the_file_has_the_mode_of_the_configuration_and_there_is_no_other_beside_it) {
  std::ofstream(saved_file() + ".new") << "of one that was killed";
  for (const mode_t mode : {0640u, 0644u, 0600u}) {
    ASSERT_EQ(::chmod(file().c_str(), mode), 0);
    save(config::Drain{mode != 0644});
    struct stat found {};
    ASSERT_EQ(::stat(saved_file().c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777, mode);
  }
  EXPECT_FALSE(std::filesystem::exists(saved_file() + ".new"));
}

TEST_F(Saved, what_is_removed_has_to_be_exported_or_configured) {
  config::Config running = load();
  EXPECT_EQ(problem_of(config::RemovedExport{"/z"}, running),
            "There is no export '/z'. 'sluicectl exports' lists the exports.");
  running.block.exports[2] = an_export("path = \"/z\"\n");
  EXPECT_EQ(problem_of(config::RemovedExport{"/z"}, running), "");
  EXPECT_FALSE(std::filesystem::exists(saved_file())) << "no file has it";
  running.block.exports[0].in_use = 0;
  EXPECT_EQ(problem_of(config::RemovedExport{"/a"}, running), "") << "it was removed, and not saved";
  EXPECT_EQ(paths(), Paths{"/b"});
}

TEST_F(Saved, nothing_is_written_that_could_not_be_started) {
  const config::Config running = load();
  configure("[[export]]\npath = \"/a\"\n[[export]]\npath = \"/b\"\n[[export]]\npath = \"/new\"\n");
  const std::string overlap = problem_of(an_export("path = \"/new/c\"\n"), running);
  EXPECT_NE(overlap.find("exports '/new/c' and '/new' overlap"), std::string::npos) << overlap;
  configure("[transport]\ncredits = 0\n");
  EXPECT_NE(problem_of(config::Drain{true}, running).find("sluice.toml:3: credits has to be"),
            std::string::npos);
  std::ofstream(file()) << "";
  EXPECT_EQ(problem_of(config::Drain{true}, running),
            "The key saved_changes in " + file() +
                " has changed since it was read. Run 'sluicectl config reload' to apply it.");
  EXPECT_FALSE(std::filesystem::exists(saved_file()));
}

TEST_F(Saved, a_file_that_cannot_be_written_stays_as_it_was) {
  save(config::Drain{true});
  const std::string before = saved_text();
  // A folder of that name fails the write for root as well.
  std::filesystem::create_directories(saved_file() + ".new/x");
  EXPECT_EQ(problem_of(config::Drain{false}, load()),
            "Cannot write " + saved_file() + " (File exists). Let the control plane's user write to " +
                folder_ + ", and free space there.");
  EXPECT_EQ(saved_text(), before);
}

TEST_F(Saved, a_file_name_is_checked_as_others_are) {
  const auto defect_of = [this](const std::string& name) {
    std::ofstream(file()) << "saved_changes = \"" + name + "\"\n";
    return defects();
  };
  for (const char* name : {"saved.toml", "./x", "/tmp/"})
    EXPECT_EQ(defect_of(name),
              file() + ":1: saved_changes has to be the path of a file, from '/', or \"\" for none.\n");
  EXPECT_NE(defect_of("/tmp").find("/tmp is a directory"), std::string::npos);
  EXPECT_EQ(defect_of("/no/such/saved.toml"),
            "saved_changes is '/no/such/saved.toml', and there is no directory '/no/such'. Create it, or "
            "name another file.\n");
}

TEST_F(Saved, a_reload_takes_what_is_saved_and_another_file) {
  const config::Config before = load();
  save(an_export("path = \"/c\"\n"));
  save(config::Drain{true});
  const config::Config live = config::live_part(before, load());
  EXPECT_EQ(config::compare(before, load()).live, Paths{"export./c"});
  EXPECT_TRUE(live.saved.drain);
  std::ofstream(file()) << "saved_changes = \"\"\n";
  EXPECT_EQ(config::compare(before, load()).live, (Paths{"export./a", "export./b", "saved_changes"}));
  EXPECT_EQ(config::live_part(before, load()).saved_changes, "");
}

}  // namespace
}  // namespace sluice
