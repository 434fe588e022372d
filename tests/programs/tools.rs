//! Compilers, version control, databases and other languages, where the host has them.

use crate::support::{Case, check};

#[test]
fn git() {
    check(&[Case {
        needs: &["git"],
        ..Case::new(
            "git",
            "shell",
            "git init -q -b main repo && cd repo && git config user.name A && git config user.email a@b
echo one > file; git add file; git commit -q -m first; echo two >> file; git commit -qam second
git log --format=%s; git diff HEAD~1 --stat | tail -1
git checkout -qb side HEAD~1; echo x > other; git add .; git commit -qm side; git merge -q main -m merge; git log --oneline | wc -l
cd ..; git clone -q repo copy; git -C copy rev-list --count HEAD; git -C copy fsck; git -C copy gc -q; git -C copy stash list
rm -rf repo copy
",
            "second\nfirst\n 1 file changed, 1 insertion(+)\n4\n4\n",
        )
    }]);
}

#[test]
fn compilers() {
    check(&[
        Case {
            needs: &["gcc"],
            ..Case::new(
                "gcc",
                "shell",
                "cat > a.c <<'E'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *twice(void *n) { *(int *)n *= 2; return 0; }
int main(void) { pthread_t t; int n = 21; pthread_create(&t, 0, twice, &n); pthread_join(t, 0); printf(\"%d\\n\", n); return getenv(\"HOME\") ? 0 : 1; }
E
gcc -O2 -Wall -pthread a.c -o a && ./a && gcc -shared -fPIC a.c -o a.so && gcc -static a.c -o s && ./s; rm a a.c a.so s
",
                "42\n42\n",
            )
        },
        Case {
            needs: &["g++"],
            ..Case::new(
                "g++",
                "shell",
                "cat > a.cc <<'E'
#include <iostream>
#include <stdexcept>
#include <thread>
int main() { std::thread t([] { std::cout << \"thread\\n\"; }); t.join(); try { throw std::runtime_error(\"caught\"); } catch (std::exception &e) { std::cout << e.what() << '\\n'; } }
E
g++ -std=c++17 a.cc -o a && ./a; rm a a.cc
",
                "thread\ncaught\n",
            )
        },
        Case {
            needs: &["make", "gcc"],
            ..Case::new(
                "make",
                "shell",
                "printf 'all: x y\\n\\t@cat x y\\n%%: %%.in\\n\\t@tr a-z A-Z < $< > $@\\nclean:\\n\\t@rm -f x y *.in Makefile\\n' > Makefile
echo one > x.in; echo two > y.in; make -s -j4; make -s all; make -s clean
",
                "ONE\nTWO\nONE\nTWO\n",
            )
        },
        Case {
            needs: &["rustc"],
            ..Case::new("rustc", "shell", "echo 'fn main() { println!(\"{}\", 6 * 7) }' > a.rs; $rustc a.rs && ./a", "42\n")
        },
        Case {
            needs: &["go"],
            options: &["--cpu", "2"],
            ..Case::new(
                "go",
                "shell",
                "cat > /tmp/a.go <<'E'
package main
import \"os\"
func main() { c := make(chan string); go func() { c <- \"from a goroutine\\n\" }(); os.Stdout.WriteString(<-c) }
E
$go run /tmp/a.go
",
                "from a goroutine\n",
            )
        },
    ]);
}

#[test]
fn databases_and_other_languages() {
    check(&[
        Case {
            needs: &["sqlite3"],
            ..Case::new(
                "sqlite3",
                "shell",
                "printf 'create table t(n);insert into t values(1),(2);select sum(n) from t;' | sqlite3 /tmp/a.db; sqlite3 /tmp/a.db 'pragma integrity_check'",
                "3\nok\n",
            )
        },
        Case {
            needs: &["perl"],
            ..Case::new(
                "perl",
                "shell",
                "perl -MPOSIX -MFile::Temp=tempfile -MJSON::PP -we 'my ($h, $f) = tempfile(); print $h \"x\"; close $h; print -s $f, \"\\n\"; print encode_json([map { $_ ** 2 } 1..3]), \"\\n\"; my $p = fork // die; exit 4 unless $p; waitpid $p, 0; print $? >> 8, \"\\n\"; print `echo shell`'",
                "1\n[1,4,9]\n4\nshell\n",
            )
        },
        Case {
            needs: &["ruby"],
            ..Case::new(
                "ruby",
                "shell",
                "ruby -e 'puts [1, 2].sum; puts Thread.new { 4 }.value; puts `echo x`'",
                "3\n4\nx\n",
            )
        },
    ]);
}

/// On Debian its configuration is in /etc/java-VERSION-openjdk.
#[test]
fn java() {
    check(&[Case {
        needs: &["java", "javac"],
        ..Case::new(
            "java",
            "shell",
            "cat > /tmp/Hello.java <<'E'
import java.nio.file.*;
public class Hello {
    public static void main(String[] a) throws Exception {
        Thread t = new Thread(() -> System.out.println(\"from a thread\")); t.start(); t.join();
        Path p = Files.createTempFile(\"x\", \"y\"); Files.writeString(p, \"text\"); System.out.println(Files.size(p));
        System.out.println(java.security.MessageDigest.getInstance(\"SHA-256\").digest().length);
    }
}
E
$java /tmp/Hello.java
",
            "from a thread\n4\n32\n",
        )
    }]);
}
