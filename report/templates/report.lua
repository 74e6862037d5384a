-- Carries what markdown alone cannot say into HTML and typst. Runs under pandoc and under Quarto, and does the same
-- under both.

local html = FORMAT:match("html") ~= nil
local typst = FORMAT:match("typst") ~= nil

-- Spans and links whose class has a function of the same name in report.typ.
local styled = {
  badge = true,
  ci = true,
  tile = true,
  cid = true,
  clause = true,
  code = true,
  count = true,
  fine = true,
  head = true,
  judged = true,
  lead = true,
  meta = true,
  number = true,
  says = true,
  thesis = true,
  tiles = true,
  told = true,
  ["tiles-name"] = true,
  word = true,
}

local function plain(inlines)
  return pandoc.utils.stringify(inlines)
end

local function verdict(classes)
  for _, class in ipairs(classes) do
    local name = class:match("^v%-(%a+)$")
    if name then
      return name
    end
  end
  return ""
end

local function in_typst(element)
  if not typst then
    return nil
  end
  for _, class in ipairs(element.classes) do
    if styled[class] then
      local open = string.format('#st-%s("%s")[', class, verdict(element.classes))
      return { pandoc.RawInline("typst", open), element, pandoc.RawInline("typst", "]") }
    end
  end
end

function Span(span)
  return in_typst(span)
end

function Link(link)
  -- A file beside the page is no place that a PDF could lead to.
  if typst and not link.target:match("^#") and not link.target:match("^%a[%w+.-]*:") then
    return link.content
  end
  local told = in_typst(link)
  if told and link.identifier ~= "" then
    -- pandoc's typst gives a link no label of its own, and other links may lead to it.
    table.insert(told, pandoc.RawInline("typst", "<" .. link.identifier .. ">"))
    link.identifier = ""
  end
  return told
end

function Image(image)
  -- What Quarto's users write as fig-alt is alt in HTML.
  image.attributes["alt"] = image.attributes["fig-alt"]
  image.attributes["fig-alt"] = nil
  if html then
    image.attributes["loading"] = "lazy"
    image.attributes["decoding"] = "async"
  end
  return image
end

-- Widths of the PDF's text, and of text and margin; the tallest figure that leaves room for a caption, and the tallest
-- that stays where it is; in points.
local NARROW, WIDE, TALL, FLOATS = 425, 498, 530, 220

-- Width and height of an SVG in points, from its head.
local function size(path)
  local file = io.open(path, "r")
  if not file then
    return nil
  end
  local head = file:read(400) or ""
  file:close()
  return tonumber(head:match('width="([%d.]+)pt"')), tonumber(head:match('height="([%d.]+)pt"'))
end

local labelled = {}

-- A figure with the text that stands for it, as large as its page lets it be, and a label of its own.
local function described(image, caption)
  local text = (image.attributes["alt"] or ""):gsub("\\", "\\\\"):gsub('"', '\\"')
  local width, height = size(image.src)
  local wide = image.classes:includes("central") or (width or 0) > NARROW
  local body = string.format('image("%s", alt: "%s"', image.src, text)
  if width and height then
    local scale = math.min(1, (wide and WIDE or NARROW) / width, TALL / height)
    body = string.format("%s, width: %.1fpt", body, width * scale)
    height = height * scale
  end
  -- A card's tall figure goes to the foot of this page or the next, and the text goes on.
  local floats = image.classes:includes("claim-figure") and (height or 0) > FLOATS
  local placed = floats and "placement: bottom, " or ""
  body = string.format("%s(%s))", wide and "st-wide" or "st-left", body)
  local name = "fig-" .. image.src:gsub("^.*/", ""):gsub("%.%w+$", "")
  local label = labelled[name] and "" or string.format(" <%s>", name)
  labelled[name] = true
  local blocks = pandoc.Blocks({ pandoc.RawBlock("typst", string.format("#figure(%s%s, caption: [", placed, body)) })
  blocks:extend(caption)
  blocks:insert(pandoc.RawBlock("typst", "])" .. label))
  return blocks
end

-- The name of a frame: a second one of the same name is told apart by its number.
local frames = {}

local function unlike_others(name)
  frames[name] = (frames[name] or 0) + 1
  return frames[name] > 1 and string.format("%s (%d)", name, frames[name]) or name
end

function Figure(figure)
  local image = figure.content[1] and figure.content[1].content and figure.content[1].content[1]
  if typst and image and image.t == "Image" then
    return described(image, figure.caption.long)
  end
  if html and image and image.t == "Image" and image.classes:includes("central") then
    -- Wide figures keep their size on a small screen and scroll in a frame.
    local label = unlike_others(plain(pandoc.Blocks(figure.caption.long)))
    local attr = { { "role", "region" }, { "tabindex", "0" }, { "aria-label", label } }
    return pandoc.Div({ figure }, pandoc.Attr("", { "table-frame", "figure-frame" }, attr))
  end
end

-- Divs whose class has a function of the same name in report.typ.
local framed = { answer = true, imprint = true, key = true, notice = true, reason = true, surprise = true, ["tiles-of"] = true }

-- An article's argument, and beside it the verdicts on its clauses.
local function argued(div)
  local blocks = pandoc.Blocks({ pandoc.RawBlock("typst", "#st-argued["), div, pandoc.RawBlock("typst", "][") })
  div:walk({
    Span = function(span)
      if span.classes:includes("judged") then
        local open = string.format('#st-beside("%s")[', verdict(span.classes))
        local told = { pandoc.RawInline("typst", open), pandoc.Str((plain(span.content):gsub("^\u{a0}", ""))), pandoc.RawInline("typst", "]") }
        blocks:insert(pandoc.Para(told))
      end
    end,
  })
  blocks:insert(pandoc.RawBlock("typst", "]"))
  return blocks
end

local function blocks_of_class(div)
  local open = string.format("#st-block-%s[", div.classes[1])
  return { pandoc.RawBlock("typst", open), div, pandoc.RawBlock("typst", "]") }
end

-- One bar with a piece for each verdict, as wide as there are claims that got it.
local function bar(div)
  local pieces = {}
  div:walk({
    Span = function(span)
      local count = tonumber(plain(span.content))
      if span.classes:includes("seg") and count then
        table.insert(pieces, string.format('("%s", %d)', verdict(span.classes), count))
      end
    end,
  })
  return pandoc.RawBlock("typst", "#st-bar((" .. table.concat(pieces, ", ") .. ",))")
end

function Div(div)
  if typst and div.classes[1] == "argued" then
    return argued(div)
  end
  if typst and div.classes[1] == "tally" then
    return bar(div)
  end
  if typst and framed[div.classes[1]] then
    return blocks_of_class(div)
  end
end

-- Takes the braces off the end of a caption, which Quarto's reader leaves there as text: classes, and the columns'
-- shares of the table's width in percent.
local function take_attributes(tbl)
  local caption = tbl.caption
  local last = caption.long[#caption.long]
  local inlines = last and last.content or pandoc.Inlines({})
  for place = #inlines, 1, -1 do
    if inlines[place].t == "Str" and inlines[place].text:match("^{%.") then
      local braces = ""
      while #inlines >= place do
        braces = plain(inlines:remove()) .. braces
      end
      if #inlines > 0 and inlines[#inlines].t == "Space" then
        inlines:remove()
      end
      caption.long[#caption.long] = pandoc.Plain(inlines)
      tbl.caption = caption
      for class in braces:gmatch("%.([%w_-]+)") do
        tbl.classes:insert(class)
      end
      local column = 0
      for share in (braces:match("widths=(.*)") or ""):gmatch("%d+") do
        column = column + 1
        if tbl.colspecs[column] then
          tbl.colspecs[column] = { tbl.colspecs[column][1], tonumber(share) / 100 }
        end
      end
      return
    end
  end
end

-- Terms and what is said of them stand side by side: a list of typst's own would be one without items to a reader who
-- listens, once it is set that way.
function DefinitionList(list)
  if not typst then
    return nil
  end
  local blocks = pandoc.Blocks({})
  for _, item in ipairs(list.content) do
    blocks:extend({ pandoc.RawBlock("typst", "#st-fact["), pandoc.Plain(item[1]), pandoc.RawBlock("typst", "][") })
    for _, told in ipairs(item[2]) do
      blocks:extend(told)
    end
    blocks:insert(pandoc.RawBlock("typst", "]"))
  end
  return blocks
end

local tables = 0

-- Beside the id of a claim in the PDF stands the page of its card.
local function paged(tbl)
  for _, body in ipairs(tbl.bodies) do
    for _, row in ipairs(body.body) do
      local first = row.cells[1] and row.cells[1].contents[1]
      local link = first and first.content and first.content[1]
      if link and link.t == "Link" and link.target:match("^#[%w_-]+$") then
        first.content:insert(pandoc.RawInline("typst", string.format("#st-page-of(<%s>)", link.target:sub(2))))
      end
    end
  end
end

local function rows(tbl)
  local count = 0
  for _, body in ipairs(tbl.bodies) do
    count = count + #body.body
  end
  return count
end

function Table(tbl)
  take_attributes(tbl)
  for _, row in ipairs(tbl.head.rows) do
    for _, cell in ipairs(row.cells) do
      cell.attributes["scope"] = "col"
    end
  end
  if html then
    -- A table that is wider than the page scrolls in its own frame, which the keyboard must reach.
    local frame = pandoc.Attr("", { "table-frame" }, {
      { "role", "region" },
      { "tabindex", "0" },
      { "aria-label", unlike_others(plain(pandoc.Blocks(tbl.caption.long))) },
    })
    return pandoc.Div({ tbl }, frame)
  end
  if typst then
    local class = tbl.classes[1] or "plain"
    if class == "claims" then
      paged(tbl)
    end
    -- The figure around it is written here: Quarto leaves it out of tables that it does not number itself.
    tables = tables + 1
    local open = string.format('#st-table("%s", <tab-%d>, columns: %d, rows: %d)[', class, tables, #tbl.colspecs, rows(tbl))
    local blocks = pandoc.Blocks({ pandoc.RawBlock("typst", open) })
    blocks:extend(tbl.caption.long)
    tbl.caption = { long = {} }
    tbl.classes:insert("typst:no-figure")
    blocks:extend({ pandoc.RawBlock("typst", "]["), tbl, pandoc.RawBlock("typst", "]") })
    return blocks
  end
end

-- Labels of the figures and of the tables among some blocks, as lists of typst.
local function shown(blocks)
  local figures, tabled = {}, {}
  pandoc.Blocks(blocks):walk({
    RawBlock = function(raw)
      local label = raw.format == "typst" and raw.text:match("^%]%) <(fig%-[%w_-]+)>")
      if label then
        table.insert(figures, "<" .. label .. ">,")
      end
      local tab = raw.format == "typst" and raw.text:match("^#st%-table%(.-(<tab%-%d+>,)")
      if tab then
        table.insert(tabled, tab)
      end
    end,
  })
  if #figures + #tabled > 0 then
    return string.format("(%s), (%s)", table.concat(figures, " "), table.concat(tabled, " "))
  end
end

-- Whether a table comes first, or a figure: they take the margin as well, and say by themselves what they are.
local function begins_wide(blocks)
  for _, block in ipairs(blocks) do
    if block.t == "Div" then
      return begins_wide(block.content)
    end
    if block.t ~= "RawBlock" or block.format ~= "html" then
      return block.t == "RawBlock" and (block.text:match("^#st%-table") or block.text:match("^#figure")) ~= nil
    end
  end
  return false
end

-- The place of the first typst block from `start` on that begins as `pattern` says.
local function find(blocks, pattern, start)
  for place = start, #blocks do
    if blocks[place].t == "RawBlock" and blocks[place].text:match(pattern) then
      return place
    end
  end
end

-- A figure that floats comes after the first fact of its card: else it might float to a page before its heading. It
-- stands before the next card.
local function floated(blocks)
  local first = find(blocks, "^#figure%(placement", 1)
  local last = first and find(blocks, "^%]%)", first)
  local fact = last and find(blocks, "^#st%-fact", last)
  local after = fact and find(blocks, "^%]$", fact)
  if not after then
    if first then
      blocks[first] = pandoc.RawBlock("typst", (blocks[first].text:gsub("placement: %a+, ", "")))
    end
    return blocks
  end
  local moved, ordered = pandoc.Blocks({}), pandoc.Blocks({})
  for place, block in ipairs(blocks) do
    (first <= place and place <= last and moved or ordered):insert(block)
    if place == after then
      ordered:extend(moved)
    end
  end
  ordered:insert(pandoc.RawBlock("typst", "#place.flush()"))
  return ordered
end

-- A card has its id, its verdict and the numbers of what it shows in the margin. One that is short stays whole.
local SHORT = 1300

local function card(header, blocks)
  for place, inline in ipairs(header.content) do
    if inline.t == "RawInline" and inline.text:match("^#st%-cid%(") then
      header.content[place] = pandoc.RawInline("typst", "#st-card-id[")
      if header.content[place + 3] and header.content[place + 3].t == "Space" then
        header.content:remove(place + 3)
      end
      break
    end
  end
  local told = shown(blocks)
  local status = blocks[1] and blocks[1].t == "Para" and blocks[1].content
  local open = status and status[1].t == "RawInline" and status[1].text:match('^#st%-badge%("(%a*)"%)%[$')
  if open then
    status[1] = pandoc.RawInline("typst", string.format('#st-card-verdict("%s", %s)[', open, told or "(), ()"))
    if status[4] and status[4].t == "Space" then
      status:remove(4)
    end
    blocks:insert(1, pandoc.RawBlock("typst", "#block(sticky: true)["))
    blocks:insert(3, pandoc.RawBlock("typst", "]"))
  end
  local length = 0
  for _, block in ipairs(blocks) do
    length = length + #plain(pandoc.Blocks({ block }))
  end
  blocks = floated(blocks)
  blocks:insert(1, header)
  if not told and length < SHORT then
    blocks:insert(1, pandoc.RawBlock("typst", "#block(breakable: false, width: 100%)["))
    blocks:insert(pandoc.RawBlock("typst", "]"))
  end
  return blocks
end

-- A chapter of some length begins a page of its own.
local LONG = 2500

-- In the PDF: the opening stands on a page of its own, before the contents; sections say in the margin what they show.
function Pandoc(doc)
  if not typst then
    return nil
  end
  local parts, part = {}, { blocks = pandoc.Blocks({}) }
  for _, block in ipairs(doc.blocks) do
    if block.t == "Header" then
      table.insert(parts, part)
      part = { header = block, blocks = pandoc.Blocks({}) }
    else
      part.blocks:insert(block)
    end
  end
  table.insert(parts, part)

  -- Chapters are the highest headings that there are: whoever calls has shifted them, or not.
  local top = math.huge
  for place = 2, #parts do
    top = math.min(top, parts[place].header.level)
  end
  local blocks, opening = pandoc.Blocks({}), true
  for place, one in ipairs(parts) do
    local header = one.header
    if header and header.level == top then
      local length = 0
      for follows = place, #parts do
        if follows > place and parts[follows].header.level == top then
          break
        end
        length = length + #plain(parts[follows].blocks)
      end
      if opening and header.identifier ~= "answer" then
        opening = false
        blocks:insert(pandoc.RawBlock("typst", "#pagebreak(weak: true)\n#st-contents()\n#pagebreak(weak: true)"))
      elseif not opening and length > LONG then
        blocks:insert(pandoc.RawBlock("typst", "#pagebreak(weak: true)"))
      end
    end
    if header and opening then
      header.classes:insert("unnumbered")
    end
    if header and header.classes:includes("claim") then
      blocks:extend(card(header, one.blocks))
    else
      blocks:extend(pandoc.Blocks({ header }))
      local told = header and not opening and shown(one.blocks)
      if told and not begins_wide(one.blocks) and header.level < top + 2 then
        blocks:insert(pandoc.RawBlock("typst", string.format("#st-section-shows(%s)", told)))
      end
      for _, block in ipairs(one.blocks) do
        -- What is folded on a screen begins the second page.
        local folded = opening and block.t == "Para" and block.content[2]
        if folded and folded.classes and folded.classes:includes("print-only") then
          blocks:insert(pandoc.RawBlock("typst", "#pagebreak(weak: true)"))
        end
        blocks:insert(block)
      end
    end
  end
  doc.blocks = blocks
  return doc
end
