# One sentence per line, from text in paragraphs:
#   awk -f recipes/one-billion-word/sentences.awk dickens.txt > dickens-sentences.txt
# A paragraph is the text between blank lines; its white space becomes single spaces. A sentence ends at . ! or ? with the quotation marks and
# brackets after it, if a space and then no small letter follow, but not after titles (Mr. Mrs. Dr. St.) and single capitals.
BEGIN { RS = ""; QUOTES = "[\"')\\]]*" }
{
  gsub(/[ \t\r\n]+/, " ")
  sub(/^ /, "")
  sub(/ $/, "")
  rest = $0
  line = ""
  while (match(rest, "[.!?]+" QUOTES " ")) {
    end = RSTART + RLENGTH - 1 # the space
    head = substr(rest, 1, end - 1)
    rest = substr(rest, end + 1)
    line = line head
    if (rest ~ /^[a-z]/ || head ~ /(^|[^A-Za-z])(Mr|Mrs|Dr|St|Messrs|[A-Z])\.$/)
      line = line " "
    else {
      print line
      line = ""
    }
  }
  if (line rest != "") print line rest
}
